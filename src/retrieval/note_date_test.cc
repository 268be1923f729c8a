#include <gtest/gtest.h>

#include "retrieval/note_date_internal.h"

namespace weft::retrieval {
namespace {

TEST(NoteDate, IsReadFromAName) {
  for (const char* name :
       {"2024-05-01-standup.md", "20240501 standup.md", "standup_2024_05_01.md",
        "standup 2024.05.01", "20240501", "v2-2024-05-01T1200.md", "2024-05-01_to_2024-05-07.md"}) {
    EXPECT_EQ(date_in_name(name), 20240501) << name;
  }
  EXPECT_EQ(date_in_name("2024-02-29.md"), 20240229);
  EXPECT_EQ(date_in_name("2000-02-29.md"), 20000229);
}

TEST(NoteDate, ADayOutsideTheCalendarIsNotADate) {
  for (const char* name :
       {"2024-13-01.md", "2024-00-10.md", "2024-04-31.md", "2023-02-29.md", "2100-02-29.md",
        "2024-05-00.md", "1899-12-31.md", "2200-01-01.md", "120240501.md", "202405011.md",
        "2024-05-011.md", "2024-05_01.md", "2024-05.md", "2024-5-1.md", "2024", "2024-", "2024-05-",
        "", "notes.md"}) {
    EXPECT_EQ(date_in_name(name), 0) << name;
  }
}

TEST(NoteDate, IsReadFromFrontMatter) {
  EXPECT_EQ(date_in_front_matter("date: 2024-05-01\ntags: [a]\n\nText.\n"), 20240501);
  EXPECT_EQ(date_in_front_matter("# Standup\ntags: [a]\nDate: \"2024-05-01\"\n\nText.\n"),
            20240501);
  EXPECT_EQ(date_in_front_matter("date = 2024-05-01T07:30:00Z"), 20240501);
  EXPECT_EQ(date_in_front_matter("date: 2024-05-41\ndate: 2024-05-01\n"), 0);
  EXPECT_EQ(date_in_front_matter("date: May\n"), 0);
  EXPECT_EQ(date_in_front_matter("update: 2024-05-01\n"), 0);
  EXPECT_EQ(date_in_front_matter("tags: [a]\n\ndate: 2024-05-01\n"), 0);  // the text's own line
  EXPECT_EQ(date_in_front_matter(""), 0);
}

}  // namespace
}  // namespace weft::retrieval
