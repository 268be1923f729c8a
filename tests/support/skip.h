// How a test leaves where the machine lacks something. Only here may a test skip
// (tests/layering_test.cc), so that WEFT_REQUIRE_ALL=1 sees every skip.
#pragma once

#include <gtest/gtest.h>

#include "support/test_data.h"

/// Leaves the test where the machine lacks something that could be had: a model, ../shared, a
/// right. That is a failure with WEFT_REQUIRE_ALL=1, which says that all must be there, as in CI.
#define WEFT_SKIP_UNLESS(has, what)                                                     \
  do {                                                                                  \
    if (has) break;                                                                     \
    if (::weft::test::requires_all()) FAIL() << "WEFT_REQUIRE_ALL is set: no " << what; \
    GTEST_SKIP() << "no " << what;                                                      \
  } while (false)
/// Leaves the test where the CPU lacks something.
#define WEFT_SKIP_UNLESS_CPU(has, what)                     \
  do {                                                      \
    if (!(has)) GTEST_SKIP() << "this CPU has no " << what; \
  } while (false)
