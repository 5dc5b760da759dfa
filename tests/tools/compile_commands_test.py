import importlib.machinery
import importlib.util
import sys
import unittest

loader = importlib.machinery.SourceFileLoader("compile_commands", "tools/compile_commands")
tool = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(tool)


def action(source):
    return {
        "mnemonic": "CppCompile",
        "arguments": ["clang", "-MD", "-MF", "a.d", "-frandom-seed=a.o", "-iquote", ".", "-isystem", "external/libtorch/torch/include"]
        + ["-include-pch", "a.pch", "-std=c++20", "-c", source, "-o", "a.o"],
    }


class CompileCommandsTest(unittest.TestCase):
    def test_sources_and_their_headers_are_named_where_they_are_edited(self):
        (item,) = tool.entries({"actions": [action("medfusion/a.cc")]}, "/w", "/b")
        self.assertEqual((item["directory"], item["file"]), ("/b/execroot/medfusion", "/w/medfusion/a.cc"))
        self.assertEqual(
            item["arguments"],
            ["clang", "-iquote", "/w", "-isystem", "/b/external/libtorch/torch/include", "-std=c++20", "-c", "/w/medfusion/a.cc"],
        )

    def test_each_source_is_there_once_and_those_of_others_are_not(self):
        sources = ["medfusion/b.cc", "medfusion/a.cc", "medfusion/b.cc", "external/x/x.cc", "bazel-out/k8/y.cc"]
        items = tool.entries({"actions": [action(source) for source in sources] + [{"mnemonic": "CppLink"}]}, "/w", "/b")
        self.assertEqual([item["file"] for item in items], ["/w/medfusion/a.cc", "/w/medfusion/b.cc"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
