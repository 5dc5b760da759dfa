#include "medfusion/distributed/task.h"

#include <utility>

namespace medfusion {

void Task::Run() {
  {
    std::lock_guard lock(mutex_);
    if (claimed_) return;
    claimed_ = true;
  }
  std::exception_ptr error;
  try {
    Body();
  } catch (...) {
    error = std::current_exception();
  }
  std::lock_guard lock(mutex_);
  error_ = error;
  done_ = true;
  ended_.notify_all();
}

void Task::Finish() {
  Run();
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return done_; });
  if (error_) std::rethrow_exception(error_);
}

bool Task::done() {
  std::lock_guard lock(mutex_);
  return done_;
}

void TaskThread::Add(std::shared_ptr<Task> task) {
  std::lock_guard lock(mutex_);
  queue_.push_back(std::move(task));
  if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
  changed_.notify_one();
}

void TaskThread::Stop(bool abort) {
  std::shared_ptr<Task> running;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    running = running_;
    changed_.notify_one();
  }
  if (abort && running) running->Abort();
  if (thread_.joinable()) thread_.join();
}

void TaskThread::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    running_ = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    running_->Run();
    lock.lock();
    // Outside the lock: the last owner of a task frees tensors.
    std::shared_ptr<Task> ran = std::move(running_);
    lock.unlock();
    ran.reset();
    lock.lock();
  }
}

}  // namespace medfusion
