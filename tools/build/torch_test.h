// What most tests include, compiled once: see pch.bzl. Tests include what they use all the same;
// this only makes it cheap.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
