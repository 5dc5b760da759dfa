"""What the Python PyTorch of the interop tests consists of. Nothing else is installed: pip resolves no dependencies."""

VERSION = "2.11.0"

PACKAGES = [
    "torch==2.11.0",
    "filelock==3.20.0",
    "fsspec==2025.10.0",
    "jinja2==3.1.6",
    "markupsafe==3.0.3",
    "mpmath==1.3.0",
    "networkx==3.4.2",
    "numpy==2.2.6",
    "packaging==25.0",
    "safetensors==0.7.0",
    "sympy==1.14.0",
    "typing-extensions==4.15.0",
]

# The CUDA libraries without which this PyTorch does not load, also where there is no GPU; each wheel is left out where the CUDA
# toolkit has the library.
CUDA_PACKAGES = {
    "libcublas.so.13": "nvidia-cublas==13.1.0.3",
    "libcudart.so.13": "nvidia-cuda-runtime==13.0.96",
    "libcudnn.so.9": "nvidia-cudnn-cu13==9.19.0.56",
    "libcufft.so.12": "nvidia-cufft==12.0.0.61",
    "libcufile.so.0": "nvidia-cufile==1.15.1.6",
    "libcupti.so.13": "nvidia-cuda-cupti==13.0.85",
    "libcurand.so.10": "nvidia-curand==10.4.0.35",
    "libcusolver.so.12": "nvidia-cusolver==12.0.4.66",
    "libcusparse.so.12": "nvidia-cusparse==12.6.3.3",
    "libcusparseLt.so.0": "nvidia-cusparselt-cu13==0.8.0",
    "libnccl.so.2": "nvidia-nccl-cu13==2.28.9",
    "libnvJitLink.so.13": "nvidia-nvjitlink==13.0.88",
    "libnvrtc.so.13": "nvidia-cuda-nvrtc==13.0.88",
    "libnvshmem_host.so.3": "nvidia-nvshmem-cu13==3.4.5",
}
