#include "vllm/store_messages.hpp"

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::vllm {
namespace {

// Once the bytes have run out, everything it gives is empty.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  bool complete() const { return complete_; }
  std::string_view left() const { return left_; }

  uint64_t number(std::size_t bytes) {
    const std::string_view from = take(bytes);
    uint64_t value = 0;
    for (std::size_t i = from.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(from[i]);
    return value;
  }

  std::string text() { return std::string(take(length("a text"))); }

  uint64_t count() {
    const uint64_t count = length("a list");
    return complete_ ? count : 0;
  }

  std::vector<std::string> texts() {
    std::vector<std::string> texts;
    for (uint64_t i = count(); i > 0 && complete_; --i) texts.push_back(text());
    return texts;
  }

 private:
  std::string_view take(uint64_t bytes) {
    complete_ = complete_ && bytes <= left_.size();
    if (!complete_) return {};
    const std::string_view taken = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return taken;
  }

  uint64_t length(const char* what) {
    const uint64_t length = number(8);
    if (length > kMaxStoreMessage) {
      throw Error(ErrorKind::refused, std::string(what) + " of " + std::to_string(length) +
                                          " is announced, above the limit of " + std::to_string(kMaxStoreMessage));
    }
    return length;
  }

  std::string_view left_;
  bool complete_ = true;
};

void read_arguments(Reader& reader, StoreMessage& message) {
  switch (message.command) {
    case StoreCommand::validate:
    case StoreCommand::ping:
      message.number = static_cast<int64_t>(reader.number(4));
      return;
    case StoreCommand::get:
    case StoreCommand::delete_key:
      message.keys.push_back(reader.text());
      return;
    case StoreCommand::set:
    case StoreCommand::append:
      message.keys.push_back(reader.text());
      message.values.push_back(reader.text());
      return;
    case StoreCommand::compare_set:
      message.keys.push_back(reader.text());
      message.values.push_back(reader.text());
      message.values.push_back(reader.text());
      return;
    case StoreCommand::add:
      message.keys.push_back(reader.text());
      message.number = static_cast<int64_t>(reader.number(8));
      return;
    case StoreCommand::check:
    case StoreCommand::wait:
    case StoreCommand::multi_get:
      message.keys = reader.texts();
      return;
    case StoreCommand::multi_set:
      for (uint64_t i = reader.count(); i > 0 && reader.complete(); --i) {
        message.keys.push_back(reader.text());
        message.values.push_back(reader.text());
      }
      return;
    case StoreCommand::count_keys:
    case StoreCommand::cancel_wait:
      return;
  }
}

}  // namespace

std::optional<StoreMessage> take_store_message(std::string_view& bytes) {
  if (bytes.empty()) return std::nullopt;
  const auto command = static_cast<unsigned char>(bytes.front());
  if (command > static_cast<unsigned char>(StoreCommand::ping)) {
    throw Error(ErrorKind::refused, "there is no command " + std::to_string(command));
  }
  StoreMessage message;
  message.command = static_cast<StoreCommand>(command);
  Reader reader(bytes.substr(1));
  read_arguments(reader, message);
  if (!reader.complete()) {
    if (bytes.size() > kMaxStoreMessage) {
      throw Error(ErrorKind::refused, "a message goes on after " + format_bytes(kMaxStoreMessage));
    }
    return std::nullopt;
  }
  bytes = reader.left();
  return message;
}

}  // namespace vime::vllm
