#include "medfusion/data/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>

namespace medfusion {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<double> Numbers(const Table& table, const char* name) {
  const auto span = table.Numbers(name).value();
  return {span.begin(), span.end()};
}

std::string Error(std::string_view text, const CsvOptions& options = {}) {
  const absl::StatusOr<Table> table = ParseCsv(text, "x.csv", options);
  EXPECT_FALSE(table.ok());
  return std::string(table.status().message());
}

TEST(CsvTest, ReadsNumbersTextsAndQuotes) {
  const auto table = ParseCsv("age,name,dose\n 61 ,\"Doe, \"\"J\"\"\",-1.5e3\n+7,,0x\n", "x.csv",
                              {.text_columns = {"name"}, .skip_columns = {"dose"}});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->rows(), 2u);
  EXPECT_THAT(Numbers(*table, "age"), ElementsAre(61, 7));
  EXPECT_THAT(*table->Texts("name"), ElementsAre("Doe, \"J\"", ""));
  EXPECT_EQ(table->columns().size(), 2u);
  EXPECT_EQ(table->Place(1), "x.csv:3");
}

TEST(CsvTest, EveryKindOfLineEndAndAByteOrderMarkGiveTheSameTable) {
  for (const char* text :
       {"a,b\n1,2\n3,4\n", "a,b\r\n1,2\r\n3,4\r\n", "a,b\r1,2\r3,4\r", "a,b\n1,2\n3,4",
        "\xEF\xBB\xBF"
        "a,b\n\n1,2\n  \n3,4\n\n"}) {
    const auto table = ParseCsv(text, "x.csv");
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_THAT(Numbers(*table, "a"), ElementsAre(1, 3));
    EXPECT_THAT(Numbers(*table, "b"), ElementsAre(2, 4));
  }
}

TEST(CsvTest, MissingNumbersAreNaNAndMissingTextsAreEmpty) {
  const auto table = ParseCsv("a,b\n,NA\nNaN,x\n?,\"\"\n", "x.csv", {.text_columns = {"b"}});
  ASSERT_TRUE(table.ok()) << table.status();
  for (const double value : Numbers(*table, "a")) EXPECT_TRUE(std::isnan(value));
  EXPECT_THAT(*table->Texts("b"), ElementsAre("", "x", ""));
}

TEST(CsvTest, ACellThatIsNoFiniteNumberIsNamedWithItsPlace) {
  EXPECT_THAT(Error("id,age\n1,5\n\n2,5y\n"),
              AllOf(StartsWith("x.csv:4: column 'age' holds '5y'"), HasSubstr("text_columns")));
  for (const char* bad : {"inf", "-inf", "1e999", "1,5", "0x10", "1 2", "--1", "+-1", "nan(1)"}) {
    EXPECT_THAT(Error(std::string("a,b\n0,\"") + bad + "\"\n"), StartsWith("x.csv:2: column 'b'"))
        << bad;
  }
}

TEST(CsvTest, LinesAreCountedThroughQuotedLineBreaks) {
  const CsvOptions options = {.text_columns = {"note"}};
  const auto table = ParseCsv("note,a\n\"two\nlines\r\n\",1\nx,2\n", "x.csv", options);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->Place(0), "x.csv:2");
  EXPECT_EQ(table->Place(1), "x.csv:5");
  EXPECT_THAT(*table->Texts("note"), ElementsAre("two\nlines\r\n", "x"));
  EXPECT_THAT(Error("note,a\n\"two\nlines\",1\nx,bad\n", options), StartsWith("x.csv:4: "));
}

TEST(CsvTest, RaggedRowsAreErrors) {
  EXPECT_EQ(Error("a,b\n1,2\n1,2,3\n"),
            "x.csv:3: 3 cells where the header names 2 columns; quote cells that hold the "
            "delimiter");
  EXPECT_THAT(Error("a,b\n1\n"), StartsWith("x.csv:2: 1 cells"));
}

TEST(CsvTest, FilesWithoutDataAreErrors) {
  EXPECT_EQ(Error(""), "x.csv: empty; expected a header row and data");
  EXPECT_EQ(Error("\n \r\n\n"), "x.csv: empty; expected a header row and data");
  EXPECT_EQ(Error("a,b\n"), "x.csv: a header of 2 columns and no data rows");
}

TEST(CsvTest, BadHeadersAreErrors) {
  EXPECT_EQ(Error("1,2\n3,4\n"),
            "x.csv:1: the first row holds numbers; add a header row that names the columns");
  EXPECT_EQ(Error("a,,c\n1,2,3\n"), "x.csv:1: column 2 of the header has no name");
  EXPECT_EQ(Error("a,b,a\n1,2,3\n"), "x.csv:1: two columns are named 'a'; rename one");
  EXPECT_EQ(Error("a,b\n1,2\n", {.text_columns = {"c"}}),
            "x.csv:1: no column is named 'c'; there are a, b");
  EXPECT_THAT(Error("a\n1\n", {.skip_columns = {"a"}}), HasSubstr("nothing is left"));
}

TEST(CsvTest, BinaryAndBrokenFilesAreErrors) {
  EXPECT_THAT(Error(std::string_view("a,b\n1,\0\n", 8)), StartsWith("x.csv:2: a NUL byte"));
  EXPECT_THAT(Error("a,b\n1,2\"3\n"), StartsWith("x.csv:2: broken quoting"));
  EXPECT_THAT(Error("a,b\n1,\"2\"3\n"), StartsWith("x.csv:2: broken quoting"));
  EXPECT_THAT(Error("a,b\n1,2\n1,\"2\n3,4\n5,6\n"),
              StartsWith("x.csv:3: the row that begins here opens a quote"));
}

TEST(CsvTest, LimitsAreKept) {
  CsvOptions options;
  options.limits.max_cell_bytes = 10;
  EXPECT_THAT(Error("a,b\n1,12345678901\n", options), HasSubstr("a cell of more than 10 bytes"));
  std::string open_quote = "a,b\n1,\"";
  for (int i = 0; i < 10000; ++i) open_quote += "2,3,4,5,6,7,8\n";
  EXPECT_THAT(Error(open_quote, options), StartsWith("x.csv:2: a cell of more than 10 bytes"));
  options = {};
  options.limits.max_columns = 3;
  EXPECT_THAT(Error("a,b,c,d\n1,2,3,4\n", options), StartsWith("x.csv:1: more than 3 columns"));
}

TEST(CsvTest, BlankLinesDoNotCountAsAnOpenCell) {
  CsvOptions options;
  options.limits.max_cell_bytes = 10;
  const auto table = ParseCsv("a\n" + std::string(200000, '\n') + "1\n", "x.csv", options);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->Place(0), "x.csv:200002");
}

TEST(CsvTest, DamagedTextsGiveAWholeTableOrAnErrorThatNamesTheFile) {
  const std::string sound = "a,b,c\n1,\"x\"\"y\",3\r\n,z,4e5\n\"6\",\"q\nr\",7\n";
  const std::string_view bytes("\",\r\n\t \0a1\xef\xbb\xbf.e+-", 16);
  std::mt19937_64 generator(1);
  size_t tables = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = sound;
    for (size_t damage = generator() % 8; damage > 0 && !text.empty(); --damage) {
      const size_t at = generator() % text.size();
      const char byte = bytes[generator() % bytes.size()];
      switch (generator() % 3) {
        case 0:
          text.insert(at, 1, byte);
          break;
        case 1:
          text.erase(at, 1 + generator() % 3);
          break;
        default:
          text[at] = byte;
      }
    }
    CsvOptions options = {.text_columns = {"b"}};
    options.limits.max_cell_bytes = 1 + generator() % 6;
    options.limits.max_columns = 1 + generator() % 5;
    const auto table = ParseCsv(text, "x.csv", options);
    if (!table.ok()) {
      ASSERT_THAT(std::string(table.status().message()), StartsWith("x.csv:"));
      continue;
    }
    ++tables;
    ASSERT_GT(table->rows(), 0u);
    for (const Column& column : table->columns()) ASSERT_EQ(column.size(), table->rows());
  }
  EXPECT_GT(tables, 100u);
}

TEST(CsvTest, FilesThatCannotBeReadAreNamed) {
  const std::string folder = ::testing::TempDir();
  const auto missing = ReadCsv(folder + "/none.csv");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("none.csv: cannot be read: No such"));
  EXPECT_EQ(ReadCsv(folder).status().code(), absl::StatusCode::kUnavailable);

  const std::string path = folder + "/small.csv";
  std::ofstream(path) << "a,b\n1,2\n";
  EXPECT_THAT(Numbers(ReadCsv(path).value(), "b"), ElementsAre(2));
  CsvOptions options;
  options.limits.max_file_bytes = 5;
  EXPECT_THAT(std::string(ReadCsv(path, options).status().message()),
              HasSubstr("small.csv: more than 5 bytes"));
}

TEST(TableTest, AskingForWhatIsNotThereNamesWhatIs) {
  const auto table =
      Table::Create("t", {{"a", std::vector<double>{1}}, {"b", std::vector<std::string>{"x"}}});
  EXPECT_EQ(table->Numbers("c").status().message(), "t: no column is named 'c'; there are a, b");
  EXPECT_EQ(table->Numbers("b").status().message(),
            "t: column 'b' was read as text, not as numbers");
  EXPECT_EQ(table->Texts("a").status().message(), "t: column 'a' was read as numbers, not as text");
  EXPECT_EQ(table->Place(0), "t, row 0");
}

TEST(TableTest, ColumnsMustFitTogether) {
  EXPECT_FALSE(Table::Create("t", {}).ok());
  EXPECT_EQ(Table::Create("t", {{"a", std::vector<double>{1}}, {"b", std::vector<double>{}}})
                .status()
                .message(),
            "t: column 'b' has 0 cells, 'a' has 1");
  EXPECT_FALSE(
      Table::Create("t", {{"a", std::vector<double>{1}}, {"a", std::vector<double>{1}}}).ok());
  EXPECT_FALSE(Table::Create("t", {{"a", std::vector<double>{1}}}, {1, 2}).ok());
}

}  // namespace
}  // namespace medfusion
