#include "support/vllm/engine.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/error.hpp"
#include "base/files.hpp"
#include "support/vllm/failures.hpp"
#include "tensor/safetensors.hpp"

namespace vime::stand_in {
namespace {

// How often a waiting call looks whether its client is still there.
constexpr std::chrono::milliseconds kLook{20};
constexpr std::chrono::microseconds kBetweenSteps{50};
constexpr std::chrono::seconds kAfterDeath{10};
constexpr const char* kDead = "EngineCore encountered an issue. See stack trace (above) for the root cause.";

bool names(const std::vector<std::string>& ids, const std::string& work) {
  return std::any_of(ids.begin(), ids.end(), [&](const std::string& id) {
    return work == id || (work.starts_with(id + "-") && work.rfind('-') == id.size());
  });
}

// Named arguments of a worker's method, as Python binds them.
void check_named(const Json& named, const std::string& method, const std::vector<std::string>& known) {
  for (const auto& [key, value] : named.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw WorkerError(method + "() got an unexpected keyword argument '" + key + "'");
  }
}

}  // namespace

Engine::Engine(Model& model, BatchOptions batch, const Flavour& flavour, TransferOptions transfer,
               EngineOptions options, Faults& faults, Trace& trace)
    : model_(model),
      faults_(faults),
      options_(std::move(options)),
      layers_(model),
      transfer_(flavour, std::move(transfer), layers_, trace),
      batch_(model, std::move(batch)) {
  if (options_.load_format != "dummy") {
    layers_.start();
    load_folder(options_.model_dir);
    layers_.finish();
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Engine::~Engine() {
  thread_.request_stop();
  changed_.notify_all();
}

Engine::Lock Engine::enter() {
  ++entering_;
  Lock lock(mutex_);
  --entering_;
  if (dead_) throw EngineDeath(kDead);
  return lock;
}

bool Engine::may_step() const {
  return !dead_ && !paused_ && !weights_asleep_ && !cache_asleep_ && !batch_.is_idle() &&
         (batch_.running() > 0 || draining_ == 0);
}

void Engine::run(const std::stop_token& stop) {
  Lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (!may_step()) {
      changed_.wait_for(lock, kLook);
      continue;
    }
    const int64_t before = batch_.running() + batch_.waiting();
    try {
      if (layers_.is_on_meta()) throw EngineDeath("Tensor on device meta is not on the expected device cuda:0!");
      if (batch_.has_unknown_token()) throw EngineDeath("CUDA error: device-side assert triggered");
      batch_.step(draining_ == 0, version_);
    } catch (const std::exception& error) {
      die(error.what());
    }
    if (batch_.running() + batch_.waiting() != before) changed_.notify_all();
    // Whoever waits for the lock gets it between two steps.
    lock.unlock();
    std::this_thread::sleep_for(options_.between_steps);
    while (entering_ > 0) std::this_thread::sleep_for(kBetweenSteps);
    lock.lock();
  }
}

void Engine::die(const std::string& reason) {
  dead_ = true;
  std::fprintf(stderr, "ERROR [core.py] EngineCore encountered a fatal error.\nERROR [core.py] %s\n", reason.c_str());
  batch_.fail_all(kDead);
  changed_.notify_all();
  // The API process follows its engine once it has said so.
  std::thread([] {
    std::this_thread::sleep_for(kAfterDeath);
    ::_exit(1);
  }).detach();
}

void Engine::generate(const std::vector<std::shared_ptr<Work>>& works, const std::function<bool()>& gone) {
  Lock lock = enter();
  load_ += static_cast<int64_t>(works.size());
  for (const auto& work : works) batch_.add(work);
  changed_.notify_all();
  const auto done = [&] {
    return std::all_of(works.begin(), works.end(), [](const auto& work) { return work->done; });
  };
  while (!changed_.wait_for(lock, kLook, done)) {
    if (!gone()) continue;
    batch_.abort([&](const Work& work) {
      return std::any_of(works.begin(), works.end(), [&](const auto& own) { return own.get() == &work; });
    });
    changed_.notify_all();
  }
  load_ -= static_cast<int64_t>(works.size());
  for (const auto& work : works) {
    if (!work->error.empty()) throw EngineDeath(work->error);
  }
}

int64_t Engine::abort_ids(const std::vector<std::string>& ids) {
  const Lock lock = enter();
  int64_t count = 0;
  batch_.abort([&](const Work& work) { return names(ids, work.id); }, &count);
  changed_.notify_all();
  return count;
}

int64_t Engine::abort_all() {
  const Lock lock = enter();
  int64_t count = 0;
  batch_.abort([](const Work&) { return true; }, &count);
  changed_.notify_all();
  return count;
}

void Engine::quiesce(Lock& lock, PauseMode mode, bool clear_cache) {
  if (mode == PauseMode::abort) batch_.abort([](const Work&) { return true; });
  if (mode == PauseMode::wait) {
    ++draining_;
    changed_.wait(lock, [&] { return dead_ || batch_.running() == 0; });
    --draining_;
    if (dead_) throw EngineDeath(kDead);
  }
  if (clear_cache) {
    batch_.preempt_running();
    batch_.reset_prefix_cache();
  }
}

void Engine::pause(PauseMode mode, bool clear_cache) {
  Lock lock = enter();
  quiesce(lock, mode, clear_cache);
  paused_ = true;
  changed_.notify_all();
}

void Engine::resume() {
  const Lock lock = enter();
  if (draining_ > 0) throw WorkerError("resume_generation called while a pause is still in progress.");
  paused_ = false;
  changed_.notify_all();
}

bool Engine::is_paused() {
  const Lock lock = enter();
  return paused_ || weights_asleep_ || cache_asleep_;
}

void Engine::sleep(int level, PauseMode mode) {
  Lock lock = enter();
  if (level > 0 && !options_.sleep_mode) {
    throw WorkerError("Sleep mode is not enabled for this engine. Start the server with --enable-sleep-mode.");
  }
  quiesce(lock, mode, level > 0);
  paused_ = true;
  if (level == 0) return;
  weights_asleep_ = cache_asleep_ = true;
  weights_dropped_ = weights_dropped_ || level >= 2;
}

void Engine::wake(const std::vector<std::string>& tags) {
  const Lock lock = enter();
  const auto named = [&](const char* tag) {
    return tags.empty() || std::find(tags.begin(), tags.end(), tag) != tags.end();
  };
  if (named("weights") && std::exchange(weights_asleep_, false) && std::exchange(weights_dropped_, false)) {
    layers_.fill_with_nonsense();
    batch_.weights_changed();
  }
  if (named("kv_cache")) cache_asleep_ = false;
  // Scheduling goes on when nothing is asleep any more.
  if (!weights_asleep_ && !cache_asleep_) paused_ = false;
  changed_.notify_all();
}

bool Engine::is_sleeping() {
  const Lock lock = enter();
  return paused_ || weights_asleep_ || cache_asleep_;
}

void Engine::reset_prefix_cache(bool running_requests) {
  const Lock lock = enter();
  if (running_requests) batch_.preempt_running();
  batch_.reset_prefix_cache();
}

// A worker's exception travels as text through the executor and the engine core.
void Engine::call_workers(const std::string& planted, const std::function<void()>& call) {
  try {
    if (!planted.empty()) throw WorkerError(planted);
    call();
  } catch (const EngineDeath& death) {
    die(death.what());
    throw EngineDeath(kDead);
  } catch (const std::exception& error) {
    std::string text = error.what();
    if (options_.workers > 1) {
      text = "Worker failed with error '" + text + "', please check the stack trace above for the root cause";
    }
    throw WorkerError("Call to collective_rpc method failed: " + text);
  }
}

void Engine::init(const Json& info, const std::string& planted) {
  const Lock lock = enter();
  call_workers(planted, [&] { transfer_.init(info); });
}

LoadFault Engine::next_load_fault() {
  const std::string action = faults_.next("load").value_or("");
  if (action == "stale") return LoadFault::stale;
  if (action == "half") return LoadFault::half;
  return action == "swapped_rows" ? LoadFault::swapped_rows : LoadFault::none;
}

void Engine::start(const std::string& planted) {
  const Lock lock = enter();
  call_workers(planted, [&] {
    if (weights_asleep_) throw EngineDeath("CUDA error: an illegal memory access was encountered (weights asleep)");
    if (!transfer_.is_active()) batch_.keep_weights();
    transfer_.start(transfer_.is_active() ? LoadFault::none : next_load_fault());
  });
}

void Engine::update(const Json& info, const std::string& planted) {
  const Lock lock = enter();
  call_workers("", [&] {
    if (weights_asleep_) throw EngineDeath("Segmentation fault: weights were pushed while they were asleep");
    const bool active = transfer_.is_active();
    try {
      if (!planted.empty()) throw WorkerError(planted);
      transfer_.update(info);
    } catch (...) {
      if (active) transfer_.update_raised();
      throw;
    }
  });
}

void Engine::finish(const std::string* version, const std::string& planted) {
  const Lock lock = enter();
  call_workers(planted, [&] {
    transfer_.finish();
    batch_.weights_changed();
    weights_dropped_ = false;
  });
  if (version != nullptr) version_ = *version;
}

void Engine::load_folder(const std::string& folder) {
  std::vector<fs::path> files;
  if (!fs::is_directory(folder)) {
    throw WorkerError("Repo id must be in the form 'repo_name' or 'namespace/repo_name': '" + folder +
                      "'. Use `repo_type` argument if needed.");
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  if (files.empty()) throw WorkerError("Cannot find any model weights with `" + folder + "`");
  std::sort(files.begin(), files.end());
  for (const fs::path& path : files) {
    if (path.filename().string().starts_with("reference")) continue;
    const tensor::SafetensorsFile file(path);
    for (const tensor::TensorView& tensor : file.tensors()) layers_.take(tensor);
  }
}

void Engine::reload_weights(const Json& arguments, const Json& named) {
  check_named(named, "GPUModelRunner.reload_weights", {"weights_iterator", "weights_path", "is_checkpoint_format"});
  if (arguments.size() > 1) throw WorkerError("the stand-in takes weights_path by name");
  if (weights_asleep_) throw EngineDeath("Segmentation fault: weights were loaded while they were asleep");
  if (named.contains("weights_path") && !named["weights_path"].is_null()) {
    if (!named["weights_path"].is_string()) throw WorkerError("weights_path: expected a str");
    options_.model_dir = named["weights_path"].get<std::string>();
  }
  batch_.keep_weights();
  layers_.start(next_load_fault());
  if (options_.load_format == "dummy") throw WorkerError("Model reloading with `dummy` format");
  load_folder(options_.model_dir);
  layers_.finish();
  batch_.weights_changed();
  weights_dropped_ = false;
}

void Engine::update_config(const Json& overrides) {
  if (!overrides.is_object()) throw WorkerError("update_config: overrides: expected a dict");
  for (const auto& [config, values] : overrides.items()) {
    if (config != "load_config" && config != "model_config")
      throw WorkerError("Config `" + config + "` not supported. Allowed configs: {'load_config', 'model_config'}");
    if (config == "load_config" && values.is_object() && values.contains("load_format"))
      options_.load_format = values["load_format"].get<std::string>();
  }
}

Json Engine::collective_rpc(const std::string& method, const Json& arguments, const Json& named,
                            const std::string& planted) {
  const Lock lock = enter();
  call_workers(planted, [&] {
    if (method == "reload_weights") return reload_weights(arguments, named);
    if (method == "update_config") {
      check_named(named, "GPUModelRunner.update_config", {"overrides"});
      if (!named.contains("overrides") && arguments.size() != 1)
        throw WorkerError("update_config() missing 1 required positional argument: 'overrides'");
      return update_config(named.contains("overrides") ? named["overrides"] : arguments[0]);
    }
    throw WorkerError("Method '" + method + "' is not implemented.");
  });
  Json results = Json::array();
  for (int worker = 0; worker < options_.workers; ++worker) results.push_back(nullptr);
  return results;
}

std::string Engine::version() {
  const Lock lock = enter();
  return version_;
}

void Engine::set_version(const std::string& version) {
  const Lock lock = enter();
  version_ = version;
}

}  // namespace vime::stand_in
