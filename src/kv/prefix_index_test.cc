#include "kv/prefix_index.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>

namespace weft::kv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class NoContents : public PageContents {
  void copy_page(int32_t, int32_t) override {}
  void page_freed(int32_t) override {}
  void give_back(int32_t, int32_t) override {}
};

/// Pages of two tokens; a text's characters are its token ids.
class PrefixIndexTest : public ::testing::Test {
 protected:
  static std::vector<int32_t> ids(const std::string& text) { return {text.begin(), text.end()}; }

  /// As a sequence that computed `text`, published it and, unless `keep`, was freed.
  std::vector<int32_t> enter(const std::string& text, bool keep = false,
                             std::string_view salt = {}) {
    std::vector<int32_t> pages;
    for (size_t i = 0; i + 2 <= text.size(); i += 2) pages.push_back(pool_.allocate().page);
    index_.insert(salt, ids(text), pages);
    if (!keep) release(pages);
    return pages;
  }
  /// As a sequence that is freed: from its last page on.
  void release(const std::vector<int32_t>& pages) {
    for (auto page = pages.rbegin(); page != pages.rend(); ++page) pool_.release(*page);
  }
  std::string find(const std::string& text, std::string_view salt = {}) const {
    return text.substr(0, index_.match(salt, ids(text)).size() * 2);
  }

  /// The trees, a page a line: its tokens, and * when somebody else holds it, too.
  std::string draw() const {
    std::multimap<int32_t, PrefixIndex::Entry> children;
    std::set<int32_t, std::greater<>> roots;  // the oldest first
    for (const auto& entry : index_.entries()) {
      children.emplace(entry.parent, entry);
      if (entry.parent < 0) roots.insert(entry.parent);
    }
    std::string picture = "\n";
    const std::function<void(int32_t, const std::string&)> draw_below =
        [&](int32_t parent, const std::string& indent) {
          const auto [begin, end] = children.equal_range(parent);
          for (auto it = begin; it != end; ++it) {
            const bool last = std::next(it) == end;
            const auto& entry = it->second;
            picture += indent + (last ? "`- " : "|- ") +
                       std::string(entry.tokens.begin(), entry.tokens.end()) +
                       (pool_.ref_count(entry.page.page) > 1 ? "*\n" : "\n");
            draw_below(entry.page.page, indent + (last ? "   " : "|  "));
          }
        };
    for (const int32_t root : roots) draw_below(root, "");
    return picture;
  }

  NoContents contents_;
  PagePool pool_{16, contents_};
  PrefixIndex index_{2, pool_};
};

TEST_F(PrefixIndexTest, SharesStartsAndFindsWholePagesOnly) {
  enter("abcdef");
  enter("abcdxy");
  enter("abzz");
  enter("qq");
  EXPECT_EQ(draw(), R"(
|- ab
|  |- cd
|  |  |- ef
|  |  `- xy
|  `- zz
`- qq
)");
  EXPECT_EQ(pool_.free_count(), 16 - 6);  // what was known already went back
  EXPECT_EQ(find("abcdefgh"), "abcdef");
  EXPECT_EQ(find("abcdxyz"), "abcdxy");
  EXPECT_EQ(find("abcde"), "abcd");
  EXPECT_EQ(find("abcz"), "ab");
  EXPECT_EQ(find("cd"), "");
  EXPECT_EQ(find("a"), "");
  EXPECT_EQ(find(""), "");
}

TEST_F(PrefixIndexTest, ARenamedPageIsFoundAndEvictedInItsPlace) {
  const auto first = enter("abcdef");
  enter("abxy");
  const auto used = enter("qqrr", /*keep=*/true);
  const std::string before = draw();
  const std::vector<int32_t> order = index_.unused();
  for (const int32_t page : {first[0], first[1], used[0]}) {
    // As PagePool::move_down, which goes down only.
    const int32_t to = pool_.allocate().page;
    if (page == used[0]) pool_.retain(to);
    index_.rename(page, to);
    for (int32_t n = pool_.ref_count(page); n > 0; --n) pool_.release(page);
    EXPECT_FALSE(index_.contains(page));
    EXPECT_EQ(draw(), before);
  }
  index_.rename(15, 14);  // not in the index
  EXPECT_EQ(find("abcdefgh"), "abcdef");
  EXPECT_EQ(find("abxyz"), "abxy");
  EXPECT_EQ(find("qqrr"), "qqrr");
  ASSERT_EQ(index_.unused().size(), order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const bool is_renamed = order[i] == first[0] || order[i] == first[1];
    EXPECT_EQ(index_.unused()[i] == order[i], !is_renamed) << i;
  }
  index_.evict(index_.evictable_count());
  EXPECT_EQ(index_.size(), 2);
  EXPECT_EQ(find("qqrr"), "qqrr");
}

TEST_F(PrefixIndexTest, RemovingAPageForgetsWhatComesAfterIt) {
  const auto pages = enter("abcdef", /*keep=*/true);
  enter("abxx");
  EXPECT_EQ(draw(), R"(
`- ab*
   |- cd*
   |  `- ef*
   `- xx
)");
  index_.remove(pages[1]);
  EXPECT_EQ(draw(), R"(
`- ab*
   `- xx
)");
  EXPECT_EQ(pool_.ref_count(pages[2]), 1);  // the sequence still has it
}

TEST_F(PrefixIndexTest, WhatHasBeenUnusedLongestGoesFirstFromTheEnd) {
  const auto abcdef = enter("abcdef");
  enter("ghij");
  // As a sequence that takes what is known of "abcd", and is freed.
  for (const int32_t page : {abcdef[0], abcdef[1]}) pool_.retain(page);
  EXPECT_EQ(index_.evictable_count(), 3);
  release({abcdef[0], abcdef[1]});
  EXPECT_EQ(index_.evictable_count(), 5);
  index_.evict(2);
  EXPECT_EQ(draw(), R"(
|- ab
|  `- cd
`- gh
)");
  index_.evict(2);
  EXPECT_EQ(draw(), R"(
`- ab
)");
  index_.evict(1);
  EXPECT_EQ(draw(), "\n");
  EXPECT_EQ(pool_.free_count(), 16);
}

TEST_F(PrefixIndexTest, WhatIsEnteredAgainCountsAsUsed) {
  const auto first = enter("abcd");
  enter("gh");
  enter("abcd");
  EXPECT_THAT(index_.unused().back(), first.front());
  index_.evict(1);
  EXPECT_EQ(draw(), R"(
`- ab
   `- cd
)");
}

TEST_F(PrefixIndexTest, KeepsPagesInUseAndDropsTheWayToThemLast) {
  const auto pages = enter("abcd", /*keep=*/true);
  enter("gh");
  EXPECT_EQ(index_.evictable_count(), 1);
  pool_.release(pages[0]);  // as a sequence that replaced its first page by a copy
  EXPECT_EQ(index_.evictable_count(), 2);
  index_.evict(1);
  EXPECT_EQ(draw(), R"(
`- ab
   `- cd*
)");
  index_.evict(1);  // what comes after it can no longer be found
  EXPECT_EQ(draw(), "\n");
  EXPECT_EQ(pool_.ref_count(pages[1]), 1);
}

TEST_F(PrefixIndexTest, OneTenantDoesNotFindWhatAnotherEntered) {
  enter("abcd", /*keep=*/false, "red");
  const auto blue = enter("abxx", /*keep=*/false, "blue");
  EXPECT_EQ(find("abcd", "red"), "abcd");
  EXPECT_EQ(find("abcd", "blue"), "ab");
  EXPECT_THAT(index_.match("blue", ids("ab")), ElementsAre(blue[0]));
  EXPECT_EQ(find("abcd"), "");
  EXPECT_EQ(find("abcd", "re"), "");
  EXPECT_EQ(find("abcd", "redb"), "");
  EXPECT_EQ(draw(), R"(
`- ab
   `- cd
`- ab
   `- xx
)");
}

TEST_F(PrefixIndexTest, ATenantWithoutPagesLeavesNothing) {
  for (int i = 0; i < 1000; ++i) {
    enter("abcd", /*keep=*/false, "tenant " + std::to_string(i));
    index_.evict(2);
  }
  EXPECT_EQ(draw(), "\n");
  EXPECT_EQ(pool_.free_count(), 16);
  EXPECT_THAT(index_.unused(), IsEmpty());
}

TEST_F(PrefixIndexTest, APageIsInOnePlace) {
  const auto pages = enter("abcd", /*keep=*/true);
  index_.insert({}, ids("xxyy"), pages);
  EXPECT_EQ(draw(), R"(
`- ab*
   `- cd*
)");
}

TEST_F(PrefixIndexTest, ManyPagesInARowNeedNoStack) {
  constexpr int32_t kPages = 200000;
  PagePool pool(kPages, contents_);
  PrefixIndex index(2, pool);
  const std::vector<int32_t> tokens(2 * kPages, 1);
  std::vector<int32_t> pages;
  for (int32_t i = 0; i < kPages; ++i) pages.push_back(pool.allocate().page);
  index.insert({}, tokens, pages);
  EXPECT_EQ(index.match({}, tokens), pages);
  for (const int32_t page : pages) pool.release(page);
  index.remove(pages[0]);
  EXPECT_EQ(pool.free_count(), kPages);
}

}  // namespace
}  // namespace weft::kv
