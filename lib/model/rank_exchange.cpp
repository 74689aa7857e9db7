#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "model/rank_links.hpp"

namespace vime::model {
namespace {

// Before every piece.
struct Header {
  char operation[40] = {};
  uint64_t sequence = 0;
  uint64_t bytes = 0;
};

Header make_header(const std::string& operation, uint64_t sequence, uint64_t bytes) {
  Header header;
  operation.copy(header.operation, sizeof header.operation - 1);
  header.sequence = sequence;
  header.bytes = bytes;
  return header;
}

std::string header_text(const Header& header) {
  const std::string name(header.operation, ::strnlen(header.operation, sizeof header.operation));
  return name + " #" + std::to_string(header.sequence);
}

}  // namespace

// Both directions of one link during one exchange. Counts include the headers.
struct RankLinks::Transfer {
  int rank = 0;
  int fd = -1;
  Header out_header;
  Piece out;
  uint64_t sent = 0;
  Header in_header;
  Space in;
  uint64_t received = 0;

  bool sending() const { return sent < sizeof(Header) + out.bytes; }
  bool receiving() const { return received < sizeof(Header) || received < sizeof(Header) + in_header.bytes; }
  // Each moves what it can without waiting and throws a sentence about the other rank.
  void send_some();
  void receive_some();

 private:
  void take_header();
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::process_failed, "rank " + std::to_string(rank) + " " + what);
  }
};

void RankLinks::Transfer::send_some() {
  while (sending()) {
    iovec parts[2];
    std::size_t count = 0;
    if (sent < sizeof(Header)) {
      parts[count++] = {reinterpret_cast<char*>(&out_header) + sent, sizeof(Header) - sent};
    }
    const uint64_t done = sent < sizeof(Header) ? 0 : sent - sizeof(Header);
    if (out.bytes > done) parts[count++] = {const_cast<std::byte*>(out.data) + done, out.bytes - done};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    const ssize_t moved = ::sendmsg(fd, &message, MSG_NOSIGNAL);
    if (moved < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return;
      // The other side's reason for leaving is worth more than ours for not sending: it shows on the receiving side.
      if (errno == EPIPE || errno == ECONNRESET) fail("left the group");
      fail("cannot be sent to: " + errno_text(errno));
    }
    sent += static_cast<uint64_t>(moved);
  }
}

void RankLinks::Transfer::take_header() {
  if (std::memcmp(in_header.operation, out_header.operation, sizeof in_header.operation) != 0 ||
      in_header.sequence != out_header.sequence) {
    fail("is at " + header_text(in_header) + ": the ranks called different operations");
  }
  if (in.text != nullptr) {
    in.text->resize(in_header.bytes);
    in.data = reinterpret_cast<std::byte*>(in.text->data());
  } else if (in_header.bytes != in.bytes) {
    fail("sent " + std::to_string(in_header.bytes) + " bytes, expected " + std::to_string(in.bytes) +
         ": the ranks have different shapes or dtypes");
  }
}

void RankLinks::Transfer::receive_some() {
  while (receiving()) {
    const bool header = received < sizeof(Header);
    const uint64_t done = header ? received : received - sizeof(Header);
    char* at = header ? reinterpret_cast<char*>(&in_header) + done : reinterpret_cast<char*>(in.data) + done;
    const ssize_t moved = ::recv(fd, at, (header ? sizeof(Header) : in_header.bytes) - done, 0);
    if (moved < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return;
      if (errno == ECONNRESET) fail("left the group");
      fail("cannot be received from: " + errno_text(errno));
    }
    if (moved == 0) fail("left the group");
    received += static_cast<uint64_t>(moved);
    if (header && received == sizeof(Header)) take_header();
  }
}

void RankLinks::run_transfers(std::vector<Transfer>& transfers) {
  const Deadline deadline(membership_.timeout);
  std::vector<pollfd> polled;
  std::vector<Transfer*> waiting;
  for (;;) {
    polled.clear();
    waiting.clear();
    for (Transfer& transfer : transfers) {
      // Receiving first: a rank that left in anger has sent its last piece before.
      transfer.receive_some();
      transfer.send_some();
      const int events = (transfer.sending() ? POLLOUT : 0) | (transfer.receiving() ? POLLIN : 0);
      if (events == 0) continue;
      polled.push_back({transfer.fd, static_cast<short>(events), 0});
      waiting.push_back(&transfer);
    }
    if (waiting.empty()) return;
    const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(deadline.remaining().count()));
    if (ready < 0 && errno != EINTR) throw_errno(ErrorKind::process_failed, "poll");
    if (ready == 0) {
      std::vector<std::string> ranks;
      for (const Transfer* transfer : waiting) ranks.push_back(std::to_string(transfer->rank));
      throw Error(ErrorKind::process_failed,
                  "waited " + format_seconds(static_cast<double>(membership_.timeout.count()) / 1e3) + " for rank" +
                      (ranks.size() == 1 ? " " : "s ") + join(ranks, ", "));
    }
  }
}

void RankLinks::exchange(const std::string& operation, const std::vector<Piece>& out, const std::vector<Space>& in) {
  const auto size = static_cast<std::size_t>(membership_.size);
  VIME_CHECK(out.size() == size && in.size() == size, "one piece for each rank");
  if (!broken_.empty()) fail(operation + ": the group failed before: " + broken_);
  ++sequence_;
  std::vector<Transfer> transfers;
  // Starting with the next rank spreads the load: no rank is everybody's first.
  for (std::size_t step = 1; step < size; ++step) {
    const std::size_t rank = (static_cast<std::size_t>(membership_.rank) + step) % size;
    Transfer transfer;
    transfer.rank = static_cast<int>(rank);
    transfer.fd = links_[rank].get();
    transfer.out_header = make_header(operation, sequence_, out[rank].bytes);
    transfer.out = out[rank];
    transfer.in = in[rank];
    transfers.push_back(transfer);
  }
  try {
    run_transfers(transfers);
  } catch (const Error& e) {
    leave(operation + " #" + std::to_string(sequence_) + ": " + e.message());
    fail(broken_);
  }
}

void RankLinks::leave(const std::string& reason) {
  if (broken_.empty()) broken_ = reason;
  for (UniqueFd& link : links_) link.reset();
}

}  // namespace vime::model
