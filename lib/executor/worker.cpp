#include "executor/worker.hpp"

#include <signal.h>
#include <torch/utils.h>
#include <unistd.h>

#include <exception>
#include <utility>

#include "base/log.hpp"
#include "base/strings.hpp"
#include "channels/device_arena.hpp"
#include "channels/nccl_channel.hpp"
#include "executor/device_forward.hpp"
#include "executor/host_forward.hpp"
#include "gpu/device.hpp"
#include "model/checkpoint.hpp"
#include "model/device_group.hpp"
#include "model/threads.hpp"
#include "model/torch_device.hpp"
#include "proc/process.hpp"

namespace vime::executor {
namespace {

tensor::DType dtype_of(const ExecutorOptions& options, const arch::ModelConfig& config) {
  return tensor::parse_dtype_name(options.dtype == "auto" ? config.dtype : options.dtype);
}

void fill_randomly(model::Decoder& decoder) {
  const torch::NoGradGuard no_grad;
  for (model::Decoder::Named& parameter : decoder.parameters()) {
    if (parameter.value.dim() == 2) {
      parameter.value.normal_(0, decoder.config().initializer_range);
    } else {
      parameter.value.fill_(parameter.name.ends_with(".bias") ? 0 : 1);
    }
  }
}

std::string names_text(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kShown; ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kShown ? text + " and " + std::to_string(names.size() - kShown) + " more" : text;
}

}  // namespace

Worker::Worker(ExecutorOptions options, arch::ModelConfig config, int index, std::string token)
    : options_(std::move(options)),
      config_(std::move(config)),
      index_(index),
      token_(std::move(token)),
      receiver_(index, options_.device_uuids.at(static_cast<std::size_t>(index)), options_.control_timeout) {}

Json Worker::meet() {
  meeting_ = std::make_unique<model::MeetingPoint>();
  return {{"port", meeting_->port()}};
}

void Worker::make_link(const Json& request) {
  const tensor::DType dtype = dtype_of(options_, config_);
  std::shared_ptr<model::Collectives> tp = model::single_rank();
  if (size() > 1) {
    const model::Membership membership{"engine workers", index_, size(), token_, options_.step_timeout};
    auto group = index_ == 0 ? model::RankGroup::host(std::move(*meeting_), membership)
                             : model::RankGroup::join(
                                   "127.0.0.1", static_cast<uint16_t>(json_int(request, "port", "setup")), membership);
    meeting_.reset();
    if (on_gpu()) {
      tp = model::over_devices(std::make_shared<model::DeviceGroup>(*group, device_, options_.start_timeout));
    } else {
      tp = model::over_group(std::move(group));
    }
  }
  const uint64_t bytes = arch::arena_layout(config_, dtype, index_, size()).total_bytes;
  arena_ = on_gpu() ? make_gpu_weights(bytes) : make_host_weights(bytes);
  decoder_ = std::make_unique<model::Decoder>(config_, dtype, std::move(tp), arena_->data(), device_);
  if (on_gpu() && options_.deterministic) decoder_->set_rows_per_product(model::kRowsPerProduct);
}

std::unique_ptr<Forward> Worker::make_forward() {
  const ForwardShape shape{options_.max_num_seqs, options_.max_model_len, options_.rows_per_block,
                           options_.logprobs_mode};
  if (!on_gpu()) return std::make_unique<HostForward>(*decoder_, size(), shape);
  DeviceForwardOptions options;
  options.shape = shape;
  options.rows_per_step = options_.rows_per_step;
  options.deterministic = options_.deterministic;
  options.graphs = size() == 1;  // a replayed exchange between GPUs would have no deadline
  options.memory_utilization = options_.gpu_memory_utilization;
  options.free_before = free_before_;
  return make_device_forward(*decoder_, options);
}

Json Worker::set_up(const Json& request) {
  device_ = model::select_torch_device(options_.device, options_.device_uuids.at(static_cast<std::size_t>(index_)));
  if (on_gpu()) free_before_ = gpu::memory_info().free_bytes;
  make_link(request);
  make_store();
  if (options_.random_weights) {
    fill_randomly(*decoder_);
  } else if (options_.load_weights) {
    model::load_weights(*decoder_, options_.model_dir);
  }
  forward_ = make_forward();
  return {{"slots", forward_->slots()}};
}

// How updates come into the arena. A GPU's worker takes what a GPU can be sent too.
void Worker::make_store() {
  const bool tied = config_.tie_word_embeddings;
  const auto trainer_layouts = [this](tensor::DType dtype, int tp_size, int stages) {
    return arch::replica_layouts(config_, dtype, tp_size, stages);
  };
  if (!on_gpu()) {
    store_ = std::make_unique<channels::HostShardStore>(
        decoder_->layout(), arena_->data(), tied, trainer_layouts,
        [converted = torch::Tensor()](const tensor::TensorView& view, tensor::DType to) mutable {
          auto* const data = const_cast<std::byte*>(view.data);
          converted =
              torch::from_blob(data, view.info.shape, model::scalar_type(view.info.dtype)).to(model::scalar_type(to));
          return static_cast<const std::byte*>(converted.data_ptr());
        });
    return;
  }
  auto store = std::make_unique<channels::DeviceShardStore>(decoder_->layout(), arena_->data(), tied, trainer_layouts);
  receiver_.add_backend("ipc", weights::OpenMapping(channels::open_device_mapping));
  receiver_.add_backend("nccl",
                        weights::OpenNetwork([own = store.get()](const Json& info, const weights::NetworkPlace& place) {
                          return std::make_unique<channels::NcclReceiver>(info, place, *own);
                        }));
  store_ = std::move(store);
}

// Answered when the arena holds the update: from then on the sender may overwrite its memory.
void Worker::update(const Json& update_info) {
  receiver_.receive(
      update_info, [this](const weights::Bucket& bucket, const std::byte* base) { store_->take(bucket, base); },
      [this](const weights::Bucket& bucket, const weights::ReplicaMemory& replica) {
        store_->take_shards(bucket, replica);
      });
  store_->wait();
}

// A bucket that was lost on the way must not pass for an update.
void Worker::finish_update() const {
  const std::vector<std::string> missing = store_->missing();
  if (missing.empty()) return;
  throw Error(ErrorKind::refused, std::to_string(missing.size()) + " of " +
                                      std::to_string(decoder_->layout().entries.size()) +
                                      " parameters were not sent since start_weight_update: " + names_text(missing));
}

Json Worker::checksums() {
  const std::vector<uint64_t> sums = store_->checksums();
  Json parts = Json::array();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const arch::ArenaEntry& entry = decoder_->layout().entries[i];
    parts.push_back({{"name", entry.parameter.full.name},
                     {"begin", entry.shard.begin},
                     {"end", entry.shard.end},
                     {"owner", entry.shard.owner()},
                     {"sum", sums[i]}});
  }
  return {{"parts", std::move(parts)}};
}

void Worker::wake(const Json& request) {
  if (request.at("weights").get<bool>()) arena_->wake();
  if (request.at("kv_cache").get<bool>()) forward_->wake();
}

Json Worker::control(const Json& request) {
  const std::string call = json_string(request, "call", "message to a worker");
  if (call == "meet") return meet();
  if (call == "setup") return set_up(request);
  if (call == "init") {
    receiver_.init(request.at("info"));
  } else if (call == "start") {
    store_->start();
  } else if (call == "update") {
    update(request.at("info"));
  } else if (call == "finish") {
    finish_update();
  } else if (call == "checksums") {
    return checksums();
  } else if (call == "figures") {
    return {{"steps", std::exchange(steps_, 0)}, {"seconds", std::exchange(step_seconds_, 0.0)}};
  } else if (call == "reload") {
    model::load_weights(*decoder_, json_string(request, "folder", call));
  } else if (call == "sleep") {
    forward_->sleep();
    arena_->sleep(static_cast<int>(json_int(request, "level", call)));
  } else if (call == "wake") {
    wake(request);
  } else {
    throw Error(ErrorKind::internal, "a worker knows no call \"" + call + "\"");
  }
  return Json::object();
}

std::vector<engine::Sampled> Worker::step(const engine::Batch& batch) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<engine::Sampled> sampled = forward_->run(batch, index_ == 0);
  step_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ++steps_;
  return sampled;
}

Frame Worker::answer(const Frame& request) {
  ErrorKind kind = ErrorKind::internal;
  std::string message;
  try {
    if (request.kind == FrameKind::step) return {FrameKind::drawn, pack_sampled(step(unpack_batch(request.payload)))};
    const Json done = control(parse_json(request.payload, "message to a worker"));
    // Steps run on a stream of their own and must find what the call wrote.
    if (on_gpu()) gpu::synchronize();
    return {FrameKind::done, done.dump()};
  } catch (const Error& error) {
    kind = error.kind();
    message = error.what();
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  } catch (const std::exception& error) {
    message = error.what();
  }
  const Json failure = {{"kind", static_cast<int>(kind)}, {"message", message}};
  return {FrameKind::failed, failure.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

void Worker::serve(int socket) {
  Frame request;
  while (read_frame(socket, request) == ReadStatus::whole) {
    if (!write_frame(socket, answer(request))) return;
  }
}

void worker_main(const ExecutorOptions& options, const arch::ModelConfig& config, int index, const std::string& token,
                 int socket, int parent) {
  int status = 1;
  try {
    if (!proc::die_with_parent(parent)) ::_exit(1);
    // A Ctrl-C reaches the whole process group; the engine's process decides what it means. Workers go when their
    // socket closes.
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_IGN);
    // Whatever else the parent had open would stay open as long as this lives. The socket moves to 3.
    if (socket != 3 && ::dup2(socket, 3) < 0) ::_exit(1);
    ::close_range(4, ~0u, 0);
    proc::set_title("vime engine " + options.run_id + " worker " + std::to_string(index));
    model::limit_threads(options.threads_per_worker);
    Worker(options, config, index, token).serve(3);
    status = 0;
  } catch (const std::exception& error) {
    log::error("executor", "engine worker " + std::to_string(index) + ": " + error.what());
  }
  // The parent's exit handlers, static destructors and unwritten output are not this process's to run or write.
  ::_exit(status);
}

}  // namespace vime::executor
