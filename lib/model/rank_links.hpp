// TCP connections between all pairs of a group's ranks, and the one step that every collective is made of: each rank
// sends a piece to every other and receives one from every other. Every piece carries the operation's name and number,
// so that ranks that got out of step learn of it at once. IPv4 addresses only: nothing here resolves a host name. One
// thread at a time. Every call blocks at most the group's timeout; after a failure the links are closed, so that the
// other ranks fail too instead of waiting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/files.hpp"

namespace vime::model {

struct Membership {
  std::string name;  // for errors: "tp", "dp", "slot 1"
  int rank = 0;
  int size = 1;
  std::string token;             // connections that do not know it are dropped
  milliseconds timeout{60'000};  // of joining, and of each collective
};

// Where rank 0 waits for the others. Listens from construction on; the port has to reach the other ranks by some other
// way.
class MeetingPoint {
 public:
  explicit MeetingPoint(const std::string& address = "127.0.0.1", uint16_t port = 0);  // 0: the kernel chooses
  uint16_t port() const { return port_; }
  const std::string& address() const { return address_; }
  int fd() const { return fd_.get(); }

 private:
  std::string address_;
  uint16_t port_ = 0;
  UniqueFd fd_;
};

class RankLinks {
 public:
  struct Piece {
    const std::byte* data = nullptr;
    uint64_t bytes = 0;
  };
  struct Space {
    std::byte* data = nullptr;
    uint64_t bytes = 0;
    std::string* text = nullptr;  // takes a piece of any length instead
  };

  // Rank 0 is given the meeting point itself, the others its address and port. Both return when all ranks are linked.
  RankLinks(Membership membership, MeetingPoint point);
  RankLinks(Membership membership, const std::string& address, uint16_t port);
  RankLinks(const RankLinks&) = delete;
  RankLinks& operator=(const RankLinks&) = delete;

  const Membership& membership() const { return membership_; }
  const std::string& local_address() const { return local_address_; }

  // out[r] goes to rank r, in[r] is filled by rank r; the own entries are not looked at.
  // Error{process_failed} names the group, the operation, this rank and the rank that was waited for or that had left.
  void exchange(const std::string& operation, const std::vector<Piece>& out, const std::vector<Space>& in);

  // Closes the links, so that ranks that wait for this one learn of it at once. Later exchanges fail with `reason`.
  void leave(const std::string& reason);
  bool broken() const { return !broken_.empty(); }  // by a failure of an exchange, or left

 private:
  struct Transfer;
  void host_links(const MeetingPoint& point);
  void join_links(const std::string& address, uint16_t port);
  void accept_ranks(const MeetingPoint& point, std::vector<int> expected, std::vector<uint16_t>* ports,
                    const Deadline& deadline);
  void send_all(int fd, const void* data, std::size_t bytes, const Deadline& deadline, const std::string& to) const;
  void receive_all(int fd, void* data, std::size_t bytes, const Deadline& deadline, const std::string& from) const;
  void run_transfers(std::vector<Transfer>& transfers);
  [[noreturn]] void fail(const std::string& what) const;

  Membership membership_;
  uint64_t key_ = 0;
  std::string local_address_ = "127.0.0.1";
  std::vector<UniqueFd> links_;  // by rank; the own one is empty
  uint64_t sequence_ = 0;
  std::string broken_;
};

}  // namespace vime::model
