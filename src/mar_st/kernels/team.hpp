// A team of threads for many short pieces of work, such as the layers of a small model.
//
// A piece takes microseconds, so threads wait for the next one awake, and sleep only when none has come for a
// while. Items are taken one by one: a thread that the system holds up delays nobody unless it holds an item.

#pragma once

#include <immintrin.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace mar {

class Team {
  public:
    explicit Team(int threads) {
        try {
            for (int i = 1; i < threads; ++i) others_.emplace_back([this, i] { attend(i); });
        } catch (...) {  // the system gives no more threads
            end();
            throw;
        }
    }

    ~Team() { end(); }

    int size() const { return static_cast<int>(others_.size()) + 1; }

    // Calls f(item, thread) for every item below count; returns when all are done. For one caller at a time; f must
    // not throw.
    template <class F>
    void each(int count, F&& f) {
        if (others_.empty() || count == 1) {
            for (int i = 0; i < count; ++i) f(i, 0);
            return;
        }
        const uint64_t round = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
        ticket_.store(round << 32 | CLOSED);  // nobody may take from the old round while the new one is written
        work_.store(
            [](void* g, int item, int thread) { (*static_cast<std::remove_reference_t<F>*>(g))(item, thread); });
        context_.store(&f);
        count_.store(count);
        left_.store(count);
        ticket_.store(round << 32);
        if (asleep_.load() > 0) {
            std::lock_guard<std::mutex> lock(mutex_);
            changed_.notify_all();
        }
        while (take(0)) {
        }
        for (int turn = 0; left_.load() > 0; ++turn) {
            if (turn < AWAKE) {
                pause(turn);
                continue;
            }
            // A thread that has an item lost its processor to somebody; it may have this one.
            std::unique_lock<std::mutex> lock(mutex_);
            waits_.store(true);
            done_.wait(lock, [this] { return left_.load() == 0; });
            waits_.store(false);
        }
    }

  private:
    using Work = void (*)(void*, int, int);
    static constexpr uint32_t CLOSED = UINT32_MAX;
    static constexpr int AWAKE = 2000;    // turns of waiting before a thread sleeps, some ten microseconds
    static constexpr int PATIENT = 1000;  // turns after which others get the processor

    void end() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            ended_ = true;
        }
        changed_.notify_all();
        for (auto& thread : others_) thread.join();
    }

    static void pause(int turn) {
        if (turn % PATIENT == PATIENT - 1)
            std::this_thread::yield();
        else
            _mm_pause();
    }

    bool open() const {
        const uint32_t item = static_cast<uint32_t>(ticket_.load());
        return item != CLOSED && static_cast<int>(item) < count_.load();
    }

    // Does one item; false where none is left.
    bool take(int thread) {
        uint64_t ticket = ticket_.load();
        for (;;) {
            const uint32_t item = static_cast<uint32_t>(ticket);
            if (item == CLOSED || static_cast<int>(item) >= count_.load()) return false;
            const Work work = work_.load();
            void* const context = context_.load();
            // What was read belongs to the ticket if the ticket is still the same; a round comes again after hours.
            if (ticket_.compare_exchange_weak(ticket, ticket + 1)) {
                work(context, static_cast<int>(item), thread);
                if (left_.fetch_sub(1) == 1 && waits_.load()) {
                    std::lock_guard<std::mutex> lock(mutex_);
                    done_.notify_one();
                }
                return true;
            }
        }
    }

    void attend(int thread) {
        for (int turn = 0;; ++turn) {
            if (take(thread)) {
                turn = 0;
            } else if (turn < AWAKE) {
                pause(turn);
            } else {
                std::unique_lock<std::mutex> lock(mutex_);
                asleep_.fetch_add(1);
                changed_.wait(lock, [this] { return ended_ || open(); });
                asleep_.fetch_sub(1);
                if (ended_) return;
                turn = 0;
            }
        }
    }

    alignas(64) std::atomic<uint64_t> ticket_{CLOSED};  // round and next item
    alignas(64) std::atomic<int> left_{0};
    alignas(64) std::atomic<Work> work_{nullptr};
    std::atomic<void*> context_{nullptr};
    std::atomic<int> count_{0}, asleep_{0};
    std::atomic<bool> waits_{false};  // the caller, for the last items
    bool ended_ = false;
    std::mutex mutex_;
    std::condition_variable changed_, done_;
    std::vector<std::thread> others_;
};

}  // namespace mar
