"""The wheels that a LibTorch of each supported version consists of, pinned by hash. The CPU library needs two small CUDA ones to load."""

DEFAULT_VERSION = "2.11.0"

_CUPTI_13_0 = {
    "spec": "nvidia-cuda-cupti==13.0.85",
    "sha256": {"x86_64": "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8"},
}
_CUPTI_13_2 = {
    "spec": "nvidia-cuda-cupti==13.2.75",
    "sha256": {"x86_64": "f75aca6bef89c625a4076a820302bb06764daa1d21595286f6bee5e237d3a187"},
}
_CUDART_13_0 = {
    "spec": "nvidia-cuda-runtime==13.0.96",
    "sha256": {"x86_64": "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"},
}
_CUDART_13_2 = {
    "spec": "nvidia-cuda-runtime==13.2.75",
    "sha256": {"x86_64": "72bf454902da594e0b833cadeddc8b7100ce1c7cf7ed9023943931be1aa913b7"},
}

WHEELS = {
    "2.11.0": [
        {
            "spec": "torch==2.11.0",
            "sha256": {
                "aarch64": "d91aac77f24082809d2c5a93f52a5f085032740a1ebc9252a7b052ef5a4fddc6",
                "x86_64": "7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a",
            },
        },
        _CUDART_13_0,
        _CUPTI_13_0,
    ],
    "2.15.0": [
        {
            "spec": "torch==2.15.0",
            "sha256": {"x86_64": "48c2d861134c0b5697c7602cb5ffa68f62a2989fdcd1717e593356f67996ca1e"},
        },
        _CUDART_13_2,
        _CUPTI_13_2,
    ],
}
