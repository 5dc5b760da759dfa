#include "medfusion/train/train_checkpoint.h"

#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/strip.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "medfusion/base/atomic_file.h"
#include "medfusion/base/status.h"
#include "medfusion/distributed/agreement.h"

namespace medfusion {
namespace {

constexpr char kEpochKey[] = "epoch";
constexpr char kMetadataKey[] = "metadata";
constexpr char kTensorsKey[] = "tensors";
constexpr size_t kKept = 2;

std::string Encode(const TrainCheckpoint& checkpoint) {
  c10::Dict<std::string, at::Tensor> tensors;
  for (const auto& [name, tensor] : checkpoint.tensors) tensors.insert(name, tensor.cpu());
  c10::impl::GenericDict file(c10::StringType::get(), c10::AnyType::get());
  file.insert(kEpochKey, checkpoint.epoch);
  file.insert(kMetadataKey, checkpoint.metadata);
  file.insert(kTensorsKey, tensors);
  const std::vector<char> bytes = torch::jit::pickle_save(file);
  return {bytes.begin(), bytes.end()};
}

absl::StatusOr<TrainCheckpoint> Decode(const std::string& bytes, const std::string& path) {
  TrainCheckpoint checkpoint;
  const absl::Status status = CatchAsStatus([&] {
    const auto file = torch::jit::pickle_load({bytes.begin(), bytes.end()}).toGenericDict();
    checkpoint.epoch = file.at(kEpochKey).toInt();
    checkpoint.metadata = file.at(kMetadataKey).toStringRef();
    for (const auto& entry : file.at(kTensorsKey).toGenericDict()) {
      checkpoint.tensors[entry.key().toStringRef()] = entry.value().toTensor();
    }
  });
  if (status.ok()) return checkpoint;
  return absl::DataLossError(absl::StrCat(path, " is no whole checkpoint: ", status.message(),
                                          "; remove it to go on from the one before"));
}

class FileCheckpointStore : public TrainCheckpointStore {
 public:
  FileCheckpointStore(std::string folder, ProcessGroup& group)
      : folder_(std::move(folder)), group_(group) {}

  absl::Status Save(const TrainCheckpoint& checkpoint) override {
    return OnRankZero([&]() -> absl::Status {
      MEDFUSION_RETURN_IF_ERROR(MakeFolders(folder_));
      MEDFUSION_RETURN_IF_ERROR(WriteFileAtomically(PathOf(checkpoint.epoch), Encode(checkpoint)));
      std::vector<int64_t> epochs = Epochs();
      while (epochs.size() > kKept) {
        std::filesystem::remove(PathOf(epochs.front()));
        epochs.erase(epochs.begin());
      }
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::optional<TrainCheckpoint>> LoadLatest() override {
    std::string path;
    std::string bytes;
    MEDFUSION_RETURN_IF_ERROR(OnRankZero([&]() -> absl::Status {
      const std::vector<int64_t> epochs = Epochs();
      if (epochs.empty()) return absl::OkStatus();
      path = PathOf(epochs.back());
      MEDFUSION_ASSIGN_OR_RETURN(bytes, ReadWholeFile(path));
      return Decode(bytes, path).status();
    }));
    path = group_.AllGatherBytes(path)[0];
    if (path.empty()) return std::nullopt;
    MEDFUSION_RETURN_IF_ERROR(CatchAsStatus([&] { BroadcastBytes(bytes); }));
    auto checkpoint = Decode(bytes, path);
    MEDFUSION_RETURN_IF_ERROR(AgreeOnStatus(group_, checkpoint.status()));
    return *std::move(checkpoint);
  }

  absl::Status Clear() override {
    return OnRankZero([&] {
      for (const int64_t epoch : Epochs()) std::filesystem::remove(PathOf(epoch));
    });
  }

 private:
  template <typename Function>
  absl::Status OnRankZero(Function function) {
    absl::Status status;
    if (group_.rank() == 0) status = CatchAsStatus(function);
    return AgreeOnStatus(group_, status);
  }

  std::string PathOf(int64_t epoch) const {
    return absl::StrCat(folder_, "/", absl::StrFormat("epoch_%06d.pt", epoch));
  }

  // Of the checkpoints that are there, ascending.
  std::vector<int64_t> Epochs() const {
    std::vector<int64_t> epochs;
    if (!std::filesystem::is_directory(folder_)) return epochs;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      int64_t epoch = 0;
      if (name.size() <= 9 || !absl::SimpleAtoi(name.substr(6, name.size() - 9), &epoch)) continue;
      if (entry.path() == PathOf(epoch)) epochs.push_back(epoch);
    }
    std::sort(epochs.begin(), epochs.end());
    return epochs;
  }

  // Collective. `bytes` becomes rank 0's.
  void BroadcastBytes(std::string& bytes) {
    const std::string length = group_.AllGatherBytes(std::to_string(bytes.size()))[0];
    bytes.resize(std::stoull(length));
    at::Tensor buffer = at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, at::kByte)
                            .to(group_.device());
    group_.Broadcast(buffer, 0)->Wait();
    buffer = buffer.cpu();
    std::memcpy(bytes.data(), buffer.const_data_ptr(), bytes.size());
  }

  std::string folder_;
  ProcessGroup& group_;
};

}  // namespace

std::unique_ptr<TrainCheckpointStore> MakeFileCheckpointStore(std::string folder,
                                                              ProcessGroup& group) {
  return std::make_unique<FileCheckpointStore>(std::move(folder), group);
}

}  // namespace medfusion
