#include "medfusion/fsdp/page_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace medfusion {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

PageSchedule Learned(std::vector<int> order) {
  PageSchedule schedule;
  schedule.Learn(std::move(order));
  return schedule;
}

TEST(PageScheduleTest, ForeseesNothingBeforeItHasLearned) {
  PageSchedule schedule;
  schedule.Touch(3, false);
  EXPECT_FALSE(schedule.learned());
  EXPECT_THAT(schedule.Upcoming(2), IsEmpty());
  EXPECT_EQ(schedule.NextUse(3), PageSchedule::kNever);
}

TEST(PageScheduleTest, RecordsChangesOfUnit) {
  PageSchedule schedule;
  for (int unit : {0, 0, 1, 1, 0}) schedule.Touch(unit, true);
  EXPECT_THAT(schedule.recorded(), ElementsAre(0, 1, 0));
}

TEST(PageScheduleTest, ForeseesTheNextDifferentUnits) {
  PageSchedule schedule = Learned({0, 1, 2, 1, 0});
  EXPECT_THAT(schedule.Upcoming(2), ElementsAre(0, 1));
  schedule.Touch(0, true);
  EXPECT_THAT(schedule.Upcoming(3), ElementsAre(1, 2));
  schedule.Touch(1, true);
  EXPECT_THAT(schedule.Upcoming(3), ElementsAre(2, 0));
  EXPECT_FALSE(schedule.deviated());
}

TEST(PageScheduleTest, CountsTouchesUntilTheNextUse) {
  PageSchedule schedule = Learned({0, 1, 2, 1, 0});
  schedule.Touch(0, true);
  EXPECT_EQ(schedule.NextUse(1), 0);
  EXPECT_EQ(schedule.NextUse(2), 1);
  EXPECT_EQ(schedule.NextUse(0), 3);
  EXPECT_EQ(schedule.NextUse(7), PageSchedule::kNever);
}

TEST(PageScheduleTest, IgnoresAnUnexpectedTouchOfWhatIsInMemory) {
  PageSchedule schedule = Learned({0, 1, 2});
  schedule.Touch(0, true);
  schedule.Touch(1, true);
  schedule.Touch(0, true);
  EXPECT_FALSE(schedule.deviated());
  EXPECT_THAT(schedule.Upcoming(1), ElementsAre(2));
}

TEST(PageScheduleTest, GoesOnBehindUnitsThatWereSkipped) {
  PageSchedule schedule = Learned({0, 1, 2, 3, 2});
  schedule.Touch(0, true);
  schedule.Touch(2, false);
  EXPECT_TRUE(schedule.deviated());
  EXPECT_EQ(schedule.first_deviation(), 2);
  EXPECT_THAT(schedule.Upcoming(1), ElementsAre(3));
}

TEST(PageScheduleTest, ForeseesNothingAfterAnUnknownUnitUntilTheNextPass) {
  PageSchedule schedule = Learned({0, 1, 2});
  schedule.Touch(0, true);
  schedule.Touch(5, false);
  EXPECT_TRUE(schedule.deviated());
  EXPECT_THAT(schedule.Upcoming(1), IsEmpty());
  EXPECT_EQ(schedule.NextUse(1), PageSchedule::kNever);
  schedule.Start();
  EXPECT_FALSE(schedule.deviated());
  EXPECT_THAT(schedule.Upcoming(1), ElementsAre(0));
}

}  // namespace
}  // namespace medfusion
