import importlib.machinery
import importlib.util
import sys
import unittest

loader = importlib.machinery.SourceFileLoader("check_dependencies", "tools/check_dependencies")
check = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(check)


def rule(kind, name, *targets):
    inputs = "".join('<rule-input name="%s"/>' % target for target in targets)
    return '<rule class="%s" name="%s">%s</rule>' % (kind, name, inputs)


def lines(*rules):
    return check.faults("<query>%s</query>" % "".join(rules))[0]


class CheckDependenciesTest(unittest.TestCase):
    def assertFault(self, kind, source, target):
        found = lines(rule(kind, source, target))
        self.assertEqual(len(found), 1, "%s -> %s" % (source, target))
        self.assertTrue(found[0].startswith("%s -> %s: " % (source, target)), found)

    def test_arrows_of_the_design_are_fine(self):
        self.assertEqual(
            lines(
                rule("cc_library", "//medfusion/train:train", "//medfusion/ddp:ddp", "//medfusion/fsdp:fsdp"),
                rule("cc_library", "//medfusion/ddp:ddp", "//medfusion/ddp:bucket", "//medfusion/distributed:setup"),
                rule("cc_library", "//medfusion/sampler:x", "//medfusion/base:status", "@com_google_absl//absl/status:status"),
                rule("cc_test", "//tests/ddp:x_test", "//medfusion/ddp:ddp", "//medfusion/fsdp:fsdp"),
            ),
            [],
        )

    def test_an_arrow_that_turns_back_is_named(self):
        self.assertFault("cc_library", "//medfusion/base:status", "//medfusion/distributed:setup")
        self.assertFault("cc_library", "//medfusion/distributed:setup", "//medfusion/ddp:ddp")

    def test_strategies_and_checkpoints_do_not_know_each_other(self):
        for here in ["ddp", "fsdp", "checkpoint"]:
            for there in {"ddp", "fsdp", "checkpoint"} - {here}:
                self.assertFault("cc_library", "//medfusion/%s:x" % here, "//medfusion/%s/inner:y" % there)

    def test_sampler_models_and_data_need_no_distributed(self):
        for here in ["sampler", "models", "data"]:
            self.assertFault("cc_library", "//medfusion/%s:x" % here, "//medfusion/distributed:setup")

    def test_an_unknown_folder_has_to_be_declared(self):
        self.assertFault("cc_library", "//medfusion/novel:x", "//medfusion/base:status")

    def test_gflags_belongs_to_programs(self):
        gflags = "@com_github_gflags_gflags//:gflags"
        self.assertFault("cc_library", "//medfusion/train:options", gflags)
        self.assertFault("cc_library", "//examples:flags", gflags)
        self.assertEqual(lines(rule("cc_binary", "//examples:train", gflags)), [])

    def test_glog_is_behind_the_log_header(self):
        self.assertFault("cc_library", "//medfusion/ddp:x", "@com_github_google_glog//:glog")
        self.assertEqual(lines(rule("cc_library", "//medfusion/base:log", "@com_github_google_glog//:glog")), [])

    def test_libraries_do_not_depend_on_tests(self):
        self.assertFault("cc_library", "//medfusion/ddp:x", "//tests/testing:ranks")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
