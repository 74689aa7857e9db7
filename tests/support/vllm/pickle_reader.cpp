#include "support/vllm/pickle_reader.hpp"

#include <map>
#include <optional>

#include "support/vllm/failures.hpp"

namespace vime::stand_in {
namespace {

using Kind = PickleValue::Kind;

[[noreturn]] void refuse(const std::string& text) {
  throw WorkerError(text);
}

PickleValue scalar(Kind kind, int64_t integer = 0, std::string text = "") {
  PickleValue value;
  value.kind = kind;
  value.integer = integer;
  value.text = std::move(text);
  return value;
}

PickleValue container(Kind kind, PickleItems items = {}) {
  PickleValue value;
  value.kind = kind;
  value.items = std::make_shared<PickleItems>(std::move(items));
  return value;
}

class Unpickler {
 public:
  explicit Unpickler(std::string_view bytes) : bytes_(bytes) {}

  PickleValue read() {
    while (true) {
      if (at_ == bytes_.size()) refuse("Ran out of input");
      const auto code = static_cast<unsigned char>(take(1).front());
      if (code == '.') return pop();  // what follows is not looked at, as in CPython
      if (!simple(code) && !sized(code) && !built(code) && !remembered(code))
        refuse("invalid load key, '\\x" + hex_digits(code) + "'.");
    }
  }

 private:
  static std::string hex_digits(unsigned char code) {
    const char* digits = "0123456789abcdef";
    return {digits[code >> 4], digits[code & 15]};
  }

  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) refuse("pickle data was truncated");
    const std::string_view part = bytes_.substr(at_, count);
    at_ += count;
    return part;
  }
  uint64_t number(int width) {
    const std::string_view part = take(static_cast<uint64_t>(width));
    uint64_t value = 0;
    for (int i = 0; i < width; ++i)
      value |= uint64_t{static_cast<unsigned char>(part[static_cast<std::size_t>(i)])} << (8 * i);
    return value;
  }
  std::string line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) refuse("pickle data was truncated");
    const std::string text(bytes_.substr(at_, end - at_));
    at_ = end + 1;
    return text;
  }

  void push(PickleValue value) { stack_.push_back(std::move(value)); }
  // Nothing below the last mark can be reached, as in CPython.
  PickleValue pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) refuse("unpickling stack underflow");
    PickleValue value = std::move(stack_.back());
    stack_.pop_back();
    return value;
  }
  PickleValue& top() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) refuse("unpickling stack underflow");
    return stack_.back();
  }
  PickleItems pop_to_mark() {
    if (marks_.empty()) refuse("could not find MARK");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    PickleItems items(std::make_move_iterator(begin), std::make_move_iterator(stack_.end()));
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }
  PickleItems pop_some(int count) {
    PickleItems items(static_cast<std::size_t>(count));
    for (int i = count; i > 0; --i) items[static_cast<std::size_t>(i - 1)] = pop();
    return items;
  }

  // Signed, little-endian, of 1 to 8 bytes.
  int64_t long_integer(uint64_t width) {
    if (width == 0) return 0;
    if (width > 8) refuse("Python int too large to convert to C long");
    uint64_t value = number(static_cast<int>(width));
    const int bits = static_cast<int>(8 * width);
    if (bits < 64 && ((value >> (bits - 1)) & 1) != 0) value |= ~uint64_t{0} << bits;
    return static_cast<int64_t>(value);
  }

  // Constants, numbers and marks.
  bool simple(unsigned char code) {
    switch (code) {
      case 0x80: {
        const uint64_t protocol = number(1);
        if (protocol > 5) refuse("unsupported pickle protocol: " + std::to_string(protocol));
        return true;
      }
      case 0x95:  // the length of a frame
        if (number(8) > bytes_.size() - at_) refuse("pickle exhausted before end of frame");
        return true;
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case 'N':
        push({});
        return true;
      case 0x88:
        push(scalar(Kind::boolean, 1));
        return true;
      case 0x89:
        push(scalar(Kind::boolean, 0));
        return true;
      case 'K':
        push(scalar(Kind::integer, static_cast<int64_t>(number(1))));
        return true;
      case 'M':
        push(scalar(Kind::integer, static_cast<int64_t>(number(2))));
        return true;
      case 'J':
        push(scalar(Kind::integer, static_cast<int32_t>(number(4))));
        return true;
      case 0x8a:
        push(scalar(Kind::integer, long_integer(number(1))));
        return true;
      case 0x8b:
        push(scalar(Kind::integer, long_integer(number(4))));
        return true;
      default:
        return false;
    }
  }

  // Text, bytes and globals.
  bool sized(unsigned char code) {
    static const std::map<unsigned char, std::pair<Kind, int>> forms = {
        {0x8c, {Kind::text, 1}}, {'X', {Kind::text, 4}},  {0x8d, {Kind::text, 8}},
        {'C', {Kind::bytes, 1}}, {'B', {Kind::bytes, 4}}, {0x8e, {Kind::bytes, 8}},
    };
    if (const auto form = forms.find(code); form != forms.end()) {
      push(scalar(form->second.first, 0, std::string(take(number(form->second.second)))));
      return true;
    }
    if (code == 'c') {
      const std::string module = line();
      push(scalar(Kind::global, 0, module + " " + line()));
      return true;
    }
    if (code == 0x93) {
      const PickleValue name = pop();
      const PickleValue module = pop();
      if (!name.is(Kind::text) || !module.is(Kind::text)) refuse("STACK_GLOBAL requires str");
      push(scalar(Kind::global, 0, module.text + " " + name.text));
      return true;
    }
    return false;
  }

  // Containers and calls.
  bool built(unsigned char code) {
    switch (code) {
      case ')':
        push(container(Kind::tuple));
        return true;
      case 't':
        push(container(Kind::tuple, pop_to_mark()));
        return true;
      case 0x85:
      case 0x86:
      case 0x87:
        push(container(Kind::tuple, pop_some(code - 0x84)));
        return true;
      case ']':
        push(container(Kind::list));
        return true;
      case '}':
        push(container(Kind::dict));
        return true;
      case 'l':
        push(container(Kind::list, pop_to_mark()));
        return true;
      case 'a':
        extend(pop_some(1), Kind::list);
        return true;
      case 'e':
        extend(pop_to_mark(), Kind::list);
        return true;
      case 's':
        extend(pop_some(2), Kind::dict);
        return true;
      case 'u':
        extend(pop_to_mark(), Kind::dict);
        return true;
      case 'R': {
        PickleItems parts = pop_some(2);
        if (!parts[0].is(Kind::global)) refuse("'" + parts[0].type_name() + "' object is not callable");
        if (!parts[1].is(Kind::tuple)) refuse("argument list must be a tuple");
        push(container(Kind::call, std::move(parts)));
        return true;
      }
      default:
        return false;
    }
  }
  void extend(PickleItems items, Kind kind) {
    PickleValue& target = top();
    if (target.is(Kind::list) && kind == Kind::dict && !items.empty())
      refuse("list indices must be integers or slices, not " + items.front().type_name());
    if (!target.is(kind)) refuse("'" + target.type_name() + "' object does not support item assignment");
    if (kind == Kind::dict && items.size() % 2 != 0) refuse("odd number of items for SETITEMS");
    target.items->insert(target.items->end(), std::make_move_iterator(items.begin()),
                         std::make_move_iterator(items.end()));
  }

  bool remembered(unsigned char code) {
    switch (code) {
      case 'q':
        memo_[number(1)] = top();
        return true;
      case 'r':
        memo_[number(4)] = top();
        return true;
      case 0x94:
        memo_[memo_.size()] = top();
        return true;
      case 'h':
      case 'j': {
        const uint64_t index = number(code == 'h' ? 1 : 4);
        const auto found = memo_.find(index);
        if (found == memo_.end()) refuse("Memo value not found at index " + std::to_string(index));
        push(found->second);
        return true;
      }
      default:
        return false;
    }
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  PickleItems stack_;
  std::vector<std::size_t> marks_;
  std::map<uint64_t, PickleValue> memo_;
};

std::optional<uint32_t> base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return std::nullopt;
}

}  // namespace

std::string PickleValue::type_name() const {
  switch (kind) {
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::text:
      return "str";
    case Kind::bytes:
      return "bytes";
    case Kind::tuple:
      return "tuple";
    case Kind::list:
      return "list";
    case Kind::dict:
      return "dict";
    case Kind::global:
      return "type";
    case Kind::call:
      return "object";
  }
  return "object";
}

PickleValue read_pickle(std::string_view bytes) {
  return Unpickler(bytes).read();
}

std::string decode_base64(std::string_view text) {
  std::string bytes;
  uint32_t held = 0;
  int digits = 0;
  int padding = 0;
  for (const char c : text) {
    if (c == '=') ++padding;
    if (padding > 0 && (digits % 4) + padding >= 4) break;
    const auto digit = base64_digit(c);
    if (!digit) continue;
    held = held << 6 | *digit;
    if (++digits % 4 != 1) bytes += static_cast<char>(held >> (6 - 2 * ((digits - 1) % 4)) & 0xff);
  }
  if (digits % 4 == 1)
    throw WorkerError("Invalid base64-encoded string: number of data characters cannot be 1 more than a multiple of 4");
  if (digits % 4 != 0 && (digits % 4) + padding < 4) throw WorkerError("Incorrect padding");
  return bytes;
}

}  // namespace vime::stand_in
