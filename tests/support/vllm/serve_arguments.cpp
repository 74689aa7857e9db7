#include "support/vllm/serve_arguments.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>

#include "base/json.hpp"
#include "base/strings.hpp"

namespace vime::stand_in {
namespace {

constexpr const char* kUsage =
    "usage: vllm [-h] [-v] {chat,complete,serve,launch,bench,collect-env,run-batch} ...\nvllm: error: ";
constexpr const char* kServeUsage = "usage: vllm serve [model_tag] [options]\nvllm serve: error: ";

struct Option {
  enum class Takes { nothing, one, several };
  Takes takes = Takes::one;
  std::function<void(const std::vector<std::string>&)> set;
};

[[noreturn]] void refuse(const std::string& flag, const std::string& text) {
  throw UsageError(kServeUsage + ("argument " + flag + ": " + text));
}

int64_t integer(const std::string& flag, const std::string& value) {
  char* end = nullptr;
  const long long number = std::strtoll(value.c_str(), &end, 10);
  if (value.empty() || *end != '\0') refuse(flag, "invalid int value: '" + value + "'");
  return number;
}

Json object(const std::string& flag, const std::string& value) {
  const Json parsed = try_parse_json(value);
  if (!parsed.is_object()) refuse(flag, "Value " + value + " cannot be converted to <function loads>.");
  return parsed;
}

std::string transfer_backend(const std::string& value, const Flavour& flavour) {
  const Json config = object("--weight-transfer-config", value);
  std::vector<std::string> backends = {"nccl", "ipc"};
  if (flavour.knows_sparse) backends.push_back("sparse_nccl");
  if (flavour.has_versions) backends.push_back("sharded_rdt");
  const std::string backend = config.contains("backend") && config["backend"].is_string()
                                  ? config["backend"].get<std::string>()
                              : config.contains("backend") ? config["backend"].dump()
                                                           : "nccl";
  const bool known = std::find(backends.begin(), backends.end(), backend) != backends.end();
  if (known && config.size() <= 1) return backend;
  if (known)
    throw Error(ErrorKind::refused, "1 validation error for WeightTransferConfig: Unexpected keyword argument");
  throw Error(ErrorKind::refused,
              "Invalid weight transfer backend: '" + backend + "'. Available backends: " + join(backends, ", "));
}

class Options {
 public:
  Options(ServeArguments& into, const Flavour& flavour) : into_(into) {
    text("--host", into.host);
    text("--dtype", into.dtype, {"auto", "half", "float16", "bfloat16", "float", "float32"});
    text("--load-format", into.load_format, {"auto", "safetensors", "hf", "dummy"});
    text("--tokenizer", into.tokenizer);
    text("--logprobs-mode", into.logprobs_mode,
         {"raw_logits", "raw_logprobs", "processed_logits", "processed_logprobs"});
    text("--generation-config", into.generation_config);
    text("--api-key", into.api_key);
    text("--scheduling-policy", into.scheduling_policy, {"fcfs", "priority"});
    number("--max-model-len", into.max_model_len);
    number("--max-num-seqs", into.max_num_seqs);
    number("--max-num-batched-tokens", into.max_num_batched_tokens);
    number("--tensor-parallel-size", into.tensor_parallel);
    number("--pipeline-parallel-size", into.pipeline_parallel);
    number("--max-logprobs", into.max_logprobs);
    number("--block-size", into.block_size);
    one("--port", [&into](const std::string& value) { into.port = static_cast<uint16_t>(integer("--port", value)); });
    one("--seed", [&into](const std::string& value) { into.seed = static_cast<uint64_t>(integer("--seed", value)); });
    one("--weight-transfer-config",
        [&into, &flavour](const std::string& value) { into.transfer_backend = transfer_backend(value, flavour); });
    options_["--served-model-name"] = {Option::Takes::several,
                                       [&into](const auto& names) { into.served_names = names; }};
    flag("--enable-sleep-mode", into.sleep_mode);
    flag("--tokens-only", into.tokens_only);
    if (flavour.newest_generate) flag("--enable-scale-out", into.scale_out);
    accepted();
    aliases_ = {
        {"-tp", "--tensor-parallel-size"}, {"-pp", "--pipeline-parallel-size"}, {"-dp", "--data-parallel-size"}};
  }

  const Option* find(const std::string& given, std::string* name) {
    std::string flag = given;
    if (given.starts_with("--")) {
      std::replace(flag.begin(), flag.end(), '_', '-');
    } else if (const auto alias = aliases_.find(given); alias != aliases_.end()) {
      flag = alias->second;
    }
    *name = flag;
    const auto found = options_.find(flag);
    return found == options_.end() ? nullptr : &found->second;
  }

 private:
  void one(const std::string& name, std::function<void(const std::string&)> set) {
    options_[name] = {Option::Takes::one, [set = std::move(set)](const auto& values) { set(values.front()); }};
  }
  void text(const std::string& name, std::string& into, std::vector<std::string> choices = {}) {
    one(name, [name, &into, choices = std::move(choices)](const std::string& value) {
      if (!choices.empty() && std::find(choices.begin(), choices.end(), value) == choices.end())
        refuse(name, "invalid choice: '" + value + "' (choose from " + join(choices, ", ") + ")");
      into = value;
    });
  }
  void number(const std::string& name, int64_t& into) {
    one(name, [name, &into](const std::string& value) { into = integer(name, value); });
  }
  void flag(const std::string& name, bool& into, bool value = true) {
    options_[name] = {Option::Takes::nothing, [&into, value](const auto&) { into = value; }};
  }
  // Flags of the real server that change nothing here.
  void accepted() {
    for (const char* name :
         {"--enforce-eager", "--disable-log-stats", "--no-enable-log-requests", "--trust-remote-code",
          "--enable-log-requests", "--skip-tokenizer-init", "--disable-custom-all-reduce",
          "--enable-server-load-tracking", "--enable-chunked-prefill"}) {
      options_[name] = {Option::Takes::nothing, [](const auto&) {}};
    }
    flag("--enable-prefix-caching", into_.prefix_caching);
    flag("--no-enable-prefix-caching", into_.prefix_caching, false);
    for (const char* name :
         {"--gpu-memory-utilization", "--kv-cache-memory-bytes", "--uvicorn-log-level", "--attention-backend",
          "--api-server-count", "--distributed-executor-backend", "--swap-space", "--compilation-config"}) {
      one(name, [](const std::string&) {});
    }
    one("--data-parallel-size", [](const std::string& value) {
      if (integer("--data-parallel-size", value) != 1) refuse("--data-parallel-size", "the stand-in knows only 1");
    });
  }

  ServeArguments& into_;
  std::map<std::string, Option> options_;
  std::map<std::string, std::string> aliases_;
};

// "--flag=value" is two words.
std::vector<std::string> words_of(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  for (const std::string& argument : arguments) {
    const std::size_t equals = argument.starts_with("--") ? argument.find('=') : std::string::npos;
    words.push_back(argument.substr(0, equals));
    if (equals != std::string::npos) words.push_back(argument.substr(equals + 1));
  }
  return words;
}

bool is_flag(const std::string& word) {
  return word.size() > 1 && word.front() == '-' && (word[1] < '0' || word[1] > '9');
}

}  // namespace

ServeArguments parse_serve_arguments(const std::vector<std::string>& arguments, const Flavour& flavour) {
  if (arguments.empty() || arguments.front() != "serve") {
    throw UsageError(kUsage + ("argument subparser: invalid choice: '" +
                               (arguments.empty() ? std::string() : arguments.front()) + "'"));
  }
  ServeArguments into;
  Options options(into, flavour);
  std::vector<std::string> unknown;
  const std::vector<std::string> words = words_of({arguments.begin() + 1, arguments.end()});
  for (std::size_t at = 0; at < words.size();) {
    const std::string& word = words[at++];
    if (!is_flag(word)) {
      if (into.model.empty())
        into.model = word;
      else
        unknown.push_back(word);
      continue;
    }
    std::string name;
    const Option* option = options.find(word, &name);
    if (option == nullptr) {
      unknown.push_back(word);
      // argparse leaves the value of a flag that it does not know among the unknown words, too.
      if (!into.model.empty() && at < words.size() && !is_flag(words[at])) unknown.push_back(words[at++]);
      continue;
    }
    std::vector<std::string> values;
    const std::size_t most = option->takes == Option::Takes::nothing ? 0
                             : option->takes == Option::Takes::one   ? 1
                                                                     : words.size();
    while (values.size() < most && at < words.size() && !is_flag(words[at])) values.push_back(words[at++]);
    if (most > 0 && values.empty())
      refuse(name, option->takes == Option::Takes::one ? "expected one argument" : "expected at least one argument");
    option->set(values);
  }
  if (!unknown.empty()) throw UsageError(kUsage + ("unrecognized arguments: " + join(unknown, " ")));
  if (into.max_num_batched_tokens < into.max_num_seqs) {
    throw Error(ErrorKind::refused, "1 validation error for SchedulerConfig: max_num_batched_tokens (" +
                                        std::to_string(into.max_num_batched_tokens) +
                                        ") must be greater than or equal to max_num_seqs (" +
                                        std::to_string(into.max_num_seqs) + ").");
  }
  if (into.served_names.empty()) into.served_names = {into.model};
  return into;
}

}  // namespace vime::stand_in
