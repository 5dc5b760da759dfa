// A piece of work that runs once: on the thread that waits for it, or on a thread of its own kind.
// Internal.
#ifndef MEDFUSION_DISTRIBUTED_TASK_H_
#define MEDFUSION_DISTRIBUTED_TASK_H_

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

namespace medfusion {

// Thread safe.
class Task {
 public:
  virtual ~Task() = default;

  // Runs the body here unless it runs or ran elsewhere.
  void Run();

  // Run(), then waits until the body has ended, and throws what it threw.
  void Finish();

  // True when Finish() would not block on a peer.
  virtual bool done();

  // Sees to it that the task gets done although nobody waits for it.
  virtual void LeaveToBackground() {}

  // Makes a body that blocks end with an exception soon, where the task can.
  virtual void Abort() {}

 protected:
  virtual void Body() = 0;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool claimed_ = false;
  bool done_ = false;
  std::exception_ptr error_;
};

// Runs tasks in the order in which they were added, on one thread that begins with the first.
// Thread safe. A task that another thread has begun is passed over.
class TaskThread {
 public:
  TaskThread() = default;
  ~TaskThread() { Stop(false); }
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  void Add(std::shared_ptr<Task> task);

  // Returns when all tasks are done. With `abort`, a running one that blocks is aborted.
  void Stop(bool abort);

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> queue_;
  std::shared_ptr<Task> running_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_TASK_H_
