/*
 * tranship: moves large data between isolated processes without copying it.
 *
 * Made from the source by `cargo run -p xtask -- header write`; tranship(3) is the manual.
 *
 * Handles are opaque. A NULL handle is an error that says so, and to close or release NULL does nothing. Close a handle when no call with
 * it is under way or will begin; to be able to stop a thread, let it wait in turns or by tranship_poll, and join it before.
 *
 * Functions that can fail return a tranship_status, and take a `tranship_error **` last: NULL if the status is enough (then nothing is
 * allocated for an error), else a variable that is NULL at first. After each call it holds the call's error, or NULL; what it held before
 * is freed. There is no error state beside that, neither global nor a thread's.
 *
 * The library starts no thread unless asked to, and installs no signal handler. It ends the program, by abort(3) and with a line on standard
 * error, only where free(3) would: a handle is closed twice, a tranship_buf used whose contents went through a bitwise copy, or an mbuf used
 * that was freed.
 */

#ifndef TRANSHIP_H
#define TRANSHIP_H

#include <stddef.h>
#include <stdint.h>

#define TRANSHIP_VERSION_MAJOR 0
#define TRANSHIP_VERSION_MINOR 1
#define TRANSHIP_VERSION_PATCH 0

/**
 * What a call returns: TRANSHIP_OK, or what went wrong. Numbers are stable, and the same in Rust, in the messages between processes and in
 * docs/errors.md. There will be more.
 */
typedef int32_t tranship_status;

enum {
    /** Done. */
    TRANSHIP_OK = 0,
    /** a system call failed. What to do: look at the cause: it names the call, and what the kernel said. */
    TRANSHIP_ERR_SYSTEM = 1,
    /** no manager answers, and none could be started. What to do: start `tranship manager`, or name its socket in TRANSHIP_SOCKET. */
    TRANSHIP_ERR_NO_MANAGER = 2,
    /** the manager is away: existing channels go on, nothing new can be had until it is back. What to do: try again later, or wait with a timeout. */
    TRANSHIP_ERR_MANAGER_AWAY = 3,
    /** a right, or the consent of the other end, is missing. What to do: look at the refusal: it names the request, and the end that refused. */
    TRANSHIP_ERR_REFUSED = 4,
    /** the time given is over. What to do: wait again, or give up; what was waited for may still happen. */
    TRANSHIP_ERR_TIMED_OUT = 5,
    /** this object belongs to the parent process: after fork(), connect a domain of your own. What to do: connect a domain in the child. */
    TRANSHIP_ERR_FORKED = 6,
    /** larger than the pool can ever hold. What to do: ask for less, or make a larger pool. */
    TRANSHIP_ERR_TOO_LARGE = 7,
    /** no memory is free now. What to do: free something, wait with a timeout, or look at the domains that hold it. */
    TRANSHIP_ERR_OUT_OF_MEMORY = 8,
    /** the channel is full. What to do: wait for the receiver, or drop the message. */
    TRANSHIP_ERR_FULL = 9,
    /** the other end is gone. What to do: close the channel; connect again if it is expected back. */
    TRANSHIP_ERR_PEER_GONE = 10,
    /** the other end broke the protocol. What to do: nothing: the channel is closed; distrust that peer. */
    TRANSHIP_ERR_PEER_VIOLATION = 11,
    /** the memory of the next message was not shown to this process, and no manager can be reached for it. What to do: let the process reach a manager; the message stays the next one. */
    TRANSHIP_ERR_CHUNK_PENDING = 12,
    /** the id names nothing that is alive. What to do: look the id up again at the domain that it came from. */
    TRANSHIP_ERR_STALE = 13,
    /** an argument is outside its range. What to do: correct it: the text says what is allowed. */
    TRANSHIP_ERR_BAD_ARGUMENT = 14,
    /** the other end died, or gave up, before it closed the channel. What to do: what came may not be all: discard it, or ask for the rest. */
    TRANSHIP_ERR_PEER_DIED = 15,
    /** messages went with the memory that they were in. What to do: connect again, and ask for them again. */
    TRANSHIP_ERR_LOST = 16,
    /** what is at the place of the manager's socket cannot be used. What to do: name another socket, or correct the modes of this one. */
    TRANSHIP_ERR_UNREACHABLE = 17,
    /** the manager is gone, and this process cannot reach another one. What to do: let the process connect, or restart it; existing channels go on. */
    TRANSHIP_ERR_CUT_OFF = 18,
    /** the connection was not made after all; nothing was sent. What to do: connect again. */
    TRANSHIP_ERR_NOT_CONNECTED = 19,
    /** the manager's rules do not allow it. What to do: change the rules, or act as another user. */
    TRANSHIP_ERR_ACCESS = 20,
    /** the manager admits no more memory: a quota, or the total, is used up. What to do: free something, or raise the quota. */
    TRANSHIP_ERR_QUOTA = 21,
    /** the name is taken. What to do: use another name, or stop the program that has it. */
    TRANSHIP_ERR_NAME_TAKEN = 22,
    /** nothing is exported under that name. What to do: start the program that exports it, or wait for it. */
    TRANSHIP_ERR_NO_SUCH_NAME = 23,
    /** a limit on numbers is reached: of connections or names at the manager, of mappings or descriptors in this process. What to do: close something, use fewer and larger buffers, or raise the limit (vm.max_map_count, RLIMIT_NOFILE, the manager's configuration). */
    TRANSHIP_ERR_LIMIT = 24,
    /** the two sides speak different versions of the protocol. What to do: use the same version on both sides. */
    TRANSHIP_ERR_VERSION = 25,
    /** both sides want the same end of the channel. What to do: let one side send and the other receive. */
    TRANSHIP_ERR_SAME_ROLE = 26,
    /** the receiver has not agreed to the pool yet, which it does when it next calls the library. What to do: send again later; the request goes on. */
    TRANSHIP_ERR_POOL_PENDING = 27,
    /** another manager is running there. What to do: use that one, or name another socket. */
    TRANSHIP_ERR_MANAGER_RUNNING = 28,
    /** the library failed at something of its own. What to do: do not use the object any more, and report it: the text says where. */
    TRANSHIP_ERR_INTERNAL = 29,
    /** the credentials cannot be used: a certificate, a key or an authority. What to do: correct the file that the text names; `tranship cert` makes credentials. */
    TRANSHIP_ERR_CREDENTIALS = 30,
    /** the two ends cannot agree on role, trust or constraints. What to do: let the two wishes overlap. */
    TRANSHIP_ERR_CHANNEL_BIND = 204,
    /** the channel is not in a state that allows this. What to do: wait for the event that leads there; over is over. */
    TRANSHIP_ERR_CHANNEL_STATE = 206,
    /** the trust levels differ. What to do: use a pool of the level that the channel has. */
    TRANSHIP_ERR_CHANNEL_TRUST = 207,
    /** there is no such endpoint, or it is taken. What to do: correct the address, or wait for its owner. */
    TRANSHIP_ERR_INVALID_ENDPOINT = 208,
    /** this is the wrong end of the channel. What to do: do it at the other end. */
    TRANSHIP_ERR_CHANNEL_DIRECTION = 209,
    /** the pool does not travel on this channel. What to do: use the channel by which the buffer came, or drop the buffer. */
    TRANSHIP_ERR_POOL_NOT_ASSIGNED = 211,
    /** the pool's memory cannot be mapped where it is to be. What to do: give a larger range of addresses, or a smaller maximum. */
    TRANSHIP_ERR_POOL_MAP = 213,
    /** the buffer belongs to another domain. What to do: use the domain, or the end, that it came from. */
    TRANSHIP_ERR_BUFFER_NOT_OWNED = 217,
    /** the buffer is not here. What to do: it was sent, or came back elsewhere: use the handle that is left. */
    TRANSHIP_ERR_BUFFER_INVALID = 218,
    /** the buffer's state does not allow this: copies of it are out, or its memory is read-only here. What to do: wait for the releases, or copy it. */
    TRANSHIP_ERR_BUFFER_STATE = 220,
    /** no copy of the buffer came over this channel. What to do: release over the channel that it came by. */
    TRANSHIP_ERR_BUFFER_NOT_A_COPY = 222,
    /** no mbuf: memory or a limit is exhausted. What to do: drop the packet, or wait. */
    TRANSHIP_ERR_NO_BUFFERS = 300,
    /** the chain has fewer bytes than that. What to do: look at its length first. */
    TRANSHIP_ERR_TOO_SHORT = 301,
    /** more bytes than the operation can do at once. What to do: do it in parts. */
    TRANSHIP_ERR_TOO_LONG = 302,
    /** it cannot be made of that few mbufs. What to do: allow more of them. */
    TRANSHIP_ERR_TOO_MANY = 303,
    /** the mbuf has data or storage already. What to do: use an empty one. */
    TRANSHIP_ERR_OCCUPIED = 304,
};

/** As a timeout, in nanoseconds: do not wait. Any number below 0 but TRANSHIP_FOREVER means the same. */
#define TRANSHIP_NOW INT64_C(0)
/** As a timeout: wait without end. */
#define TRANSHIP_FOREVER INT64_C(-1)
/** As a timeout: so many milliseconds. */
#define TRANSHIP_MS(n) ((int64_t)(n) * INT64_C(1000000))

/** The most bytes that a message can have inline. */
#define TRANSHIP_INLINE_BYTES 40


/** No content: it was sent or released, or the buf was never filled. */
#define TRANSHIP_BUF_NONE 0

/**
 * A buffer with one handle, whose bytes may be written: it was allocated, or given away to this end where this end can
 * write. After a failed send, a large buffer of a pool of level TRANSHIP_TRUST_NONE can only be sent again, read and
 * released.
 */
#define TRANSHIP_BUF_EXCLUSIVE 1

/**
 * A buffer that others may have, too: do not write its bytes. At TRANSHIP_TRUST_PRODUCER a buffer that is given away
 * arrives as one, too.
 */
#define TRANSHIP_BUF_SHARED 2

/** Up to TRANSHIP_INLINE_BYTES bytes inside the struct. */
#define TRANSHIP_BUF_INLINE 3

/** Pieces of several buffers, as one message. */
#define TRANSHIP_BUF_AGGREGATE 4

/**
 * From tranship_recv_back: the receiver has released something (tranship_send_back_released). Its name is
 * tranship_buf_id.
 */
#define TRANSHIP_BUF_RELEASED 5

/** As `wait`: look that often (`spins`), then sleep until woken. The default, with 500 looks. */
#define TRANSHIP_WAIT_SPIN_THEN_SLEEP 1

/** As `wait`: look again and again. Lowest latency, one processor. */
#define TRANSHIP_WAIT_SPIN 2

/** As `wait`: sleep at once when nothing is there. */
#define TRANSHIP_WAIT_SLEEP 3

/** As `end`: this side sends. */
#define TRANSHIP_SENDER 1

/** As `end`: this side receives. */
#define TRANSHIP_RECEIVER 2

/**
 * In `flags` of tranship_domain_options: a thread takes the manager's news, for programs that may not call into the library for long.
 * All its signals are blocked.
 */
#define TRANSHIP_DOMAIN_HELPER_THREAD 1

/** In `flags` of tranship_domain_options: the process becomes non-dumpable, so that others of the same user cannot reach into it. */
#define TRANSHIP_DOMAIN_NON_DUMPABLE 2

/** In `flags` of tranship_domain_options: no manager is started when none is found. */
#define TRANSHIP_DOMAIN_NO_AUTOSTART 4

/** In `flags` of tranship_pool_options: ask the kernel for huge pages (`tranship doctor` shows the setting that this needs). */
#define TRANSHIP_POOL_HUGE_PAGES 1

/**
 * In `flags` of tranship_pool_options: every domain that receives buffers of the pool may forward them
 * (tranship_pool_allow_forward gives the right to one domain).
 */
#define TRANSHIP_POOL_ALLOW_FORWARD 2

/** As `trust`: no domain is trusted: the receiver copies before it looks. */
#define TRANSHIP_TRUST_NONE 1

/** As `trust`, and the default: only the pool's writer can write it, ever. The kernel enforces this. */
#define TRANSHIP_TRUST_PRODUCER 2

/** As `trust`: every domain that has the pool could write, but protects its own mapping as buffers change hands. */
#define TRANSHIP_TRUST_HALF 3

/** As `trust`: every domain that has the pool can write. */
#define TRANSHIP_TRUST_FULL 4

/** As `kind`: `object` is a tranship_receiver: ready when there is a message, or the end. */
#define TRANSHIP_POLL_RECEIVER 1

/** As `kind`: `object` is a tranship_sender: ready when there is room for a message, or the receiver is gone. */
#define TRANSHIP_POLL_SENDER 2

/** As `kind`: `object` is a tranship_listener: ready when another domain has connected. */
#define TRANSHIP_POLL_LISTENER 3

/** As `kind`: `object` is a tranship_domain: ready when the manager had news, which were taken. */
#define TRANSHIP_POLL_DOMAIN 4

/** As `kind`: `fd` is a descriptor of any kind: ready when it can be read, hangs up or has an error. */
#define TRANSHIP_POLL_READABLE 5

/** As `kind`: `fd` is a descriptor of any kind: ready when it can be written, hangs up or has an error. */
#define TRANSHIP_POLL_WRITABLE 6

/** As `kind`: `object` is a tranship_subscriber (tranship/topic.h): ready when there is a message or an error. */
#define TRANSHIP_POLL_SUBSCRIBER 7

/**
 * As `kind`: `object` is a tranship_consumer (tranship/queue.h): ready when there is an item or an error. A poll that
 * finds an item has taken it: tranship_consumer_recv gives it.
 */
#define TRANSHIP_POLL_CONSUMER 8

/** A send with TRANSHIP_FOREVER waits while the channel is full. This is the default. */
#define TRANSHIP_WHEN_FULL_WAIT 0

/** Such a send drops the message, which tranship_sender_dropped counts. */
#define TRANSHIP_WHEN_FULL_DROP_NEW 1

/**
 * The receiver skips each message behind which a newer one waits (tranship_receiver_skipped). If the channel is full
 * such a send drops the message, as with TRANSHIP_WHEN_FULL_DROP_NEW: give the channel as many lines as messages may
 * be sent between two receives.
 */
#define TRANSHIP_WHEN_FULL_DROP_OLDEST 2

/**
 * This process's membership with a manager. Any thread may use it, all at the same time; see tranship_domain_close for its end.
 *
 * After a fork(2) it is the parent's: in the child every call fails as TRANSHIP_ERR_FORKED, and closing does nothing.
 */
typedef struct tranship_domain tranship_domain;

/** An error: its kind and its text. */
typedef struct tranship_error tranship_error;

/** Takes buffers by their ids, which a program carries by an IPC of its own. Any thread. */
typedef struct tranship_inbox tranship_inbox;

/**
 * A name to which other domains connect. Any thread may use it, all at the same time; see tranship_listener_close for
 * its end.
 */
typedef struct tranship_listener tranship_listener;

/**
 * Memory of this domain's, out of which it allocates buffers. Any thread may use it, all at the same time; see tranship_pool_close for its
 * end.
 */
typedef struct tranship_pool tranship_pool;

/** Receives messages from one sender. One thread at a time. */
typedef struct tranship_receiver tranship_receiver;

/** Sends messages to one receiver. One thread at a time. */
typedef struct tranship_sender tranship_sender;

/**
 * A buffer, or a message. The caller keeps the struct; it owns its content until the content is sent or released.
 *
 * Begin with all zeros (`= {0}`), or give it uninitialised to a function that fills it. Its bytes are
 * `tranship_data(&buf)` and `buf.len`. A program may set `word` at any time, and make `len` smaller, except of an
 * aggregate. All other fields are read only.
 *
 * It may be copied bitwise, but only one of the copies may be used from then on: a copy counts nothing
 * (tranship_buf_clone does). The content exists once. After it was released, sent, moved, frozen or pushed through one
 * copy, a call with another copy prints a line on standard error and ends the program by abort(3). Functions that take
 * the content leave the buf empty: a further release does nothing. Any thread may have it, one at a time.
 */
typedef struct tranship_buf {
    /** The bytes, unless they are inline or in pieces: use `tranship_data`. */
    void *ptr;
    /** Number of the bytes. */
    size_t len;
    /** A word that travels with it. */
    uint64_t word;
    /** One of TRANSHIP_BUF_NONE, ..., TRANSHIP_BUF_RELEASED. */
    uint32_t kind;
    /** The library's. */
    uint32_t flags;
    /** For the library; inline bytes. */
    uint64_t words[6];
} tranship_buf;

/** Options for joining a manager. Set `size` to `sizeof(tranship_domain_options)`; all else may be 0. */
typedef struct tranship_domain_options {
    /** sizeof(tranship_domain_options) */
    size_t size;
    /** Name that `tranship ls` shows. NULL: the program's name. */
    const char *name;
    /** The manager's socket: this one and no other. NULL: the one in TRANSHIP_SOCKET, else the system's, else the user's. */
    const char *socket;
    /** Configuration of an embedded manager, as text in TOML (`tranship manager default-config` prints one). NULL: defaults. */
    const char *config;
    /** TRANSHIP_DOMAIN_HELPER_THREAD and others, or 0. */
    uint32_t flags;
    /** 0. */
    uint32_t reserved;
    /**
     * Time to wait for a manager that does not answer: for its welcome, and in each call that only asks it something.
     * Such a call is TRANSHIP_ERR_TIMED_OUT then. 0: 10 s; TRANSHIP_FOREVER: without end.
     */
    int64_t manager_timeout_ns;
} tranship_domain_options;

/** Options of a new end of a channel. Set `size` to `sizeof(tranship_channel_options)`; all else may be 0. */
typedef struct tranship_channel_options {
    /** sizeof(tranship_channel_options) */
    size_t size;
    /** Depth of the ring: a power of two, 2 to 65,536. 0: 256. */
    uint32_t lines;
    /** TRANSHIP_WAIT_SPIN_THEN_SLEEP, TRANSHIP_WAIT_SPIN, TRANSHIP_WAIT_SLEEP: how this end waits. 0: the first. */
    uint32_t wait;
    /** Looks before it sleeps. 0: 500. */
    uint32_t spins;
    /**
     * Levels of trust whose pools a receiver takes: the sum of `1u << level` (`1u << TRANSHIP_TRUST_PRODUCER`, ...).
     * 0: of all.
     */
    uint32_t accept_trust;
    /**
     * Pool of the receiver's domain into which it copies buffers out of pools of level `none`. NULL: it takes none of
     * those.
     */
    const struct tranship_pool *snapshots;
    /**
     * The type of this end's messages, as a text that must be equal at both ends. NULL: bytes. The header that a Rust
     * type writes (`Layout::c_header`) has the text of each struct (docs/types.md).
     */
    const char *message_type;
} tranship_channel_options;

/** One thing to wait for. */
typedef struct tranship_poll_item {
    /** TRANSHIP_POLL_RECEIVER, ..., TRANSHIP_POLL_CONSUMER. 0: nothing, which is never ready. */
    uint32_t kind;
    /** Set by tranship_poll: 1 if it is ready, else 0. */
    uint32_t ready;
    /** The handle. */
    void *object;
    /** The descriptor. */
    int32_t fd;
    /** 0. */
    uint32_t reserved;
} tranship_poll_item;

/** Options of a new pool. Set `size` to `sizeof(tranship_pool_options)`; all else may be 0. */
typedef struct tranship_pool_options {
    /** sizeof(tranship_pool_options) */
    size_t size;
    /** Name that `tranship ls` shows, 1 to 64 bytes. NULL: "pool". */
    const char *name;
    /** The unit in which memory is granted and given back: a power of two from 64 KiB to 64 MiB. 0: maximum / 256 within those limits. */
    uint64_t chunk_bytes;
    /** Bytes that the pool does not give back by itself. */
    uint64_t keep_bytes;
    /** Bytes that the pool begins with and keeps. Without them it is not made. */
    uint64_t preallocate_bytes;
    /** How many buffers may exist at once, up to 1,048,576. 0: maximum / 4 KiB, at least 1024. */
    uint32_t slots;
    /**
     * TRANSHIP_TRUST_NONE, ..., TRANSHIP_TRUST_FULL: which other domains can write the pool's bytes. 0: none (`producer`).
     * At HALF and FULL every domain that has the pool can punch holes into its memory: a reader that touches a hole pays for the page.
     */
    uint32_t trust;
    /** TRANSHIP_POOL_HUGE_PAGES, TRANSHIP_POOL_ALLOW_FORWARD, both, or 0. */
    uint32_t flags;
    /** 0. */
    uint32_t reserved;
    /** Alignment of all buffers, bytes: a power of two up to the chunk size. 0: at least 64. */
    uint64_t align_bytes;
    /** Address below which all of the pool is mapped in this process. 0: anywhere. */
    uint64_t below;
    /**
     * At level TRANSHIP_TRUST_NONE: size from which on receivers do not copy buffers. Once such a buffer is sent no
     * process can write its memory, this one included: a write is a fault. 0: 4 MiB where the kernel gives shared
     * memory huge pages, else none; UINT64_MAX: none.
     */
    uint64_t seal_from;
} tranship_pool_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * An aggregate without pieces, in `out`. Its list travels in a buffer of `list_pool`; NULL: of the pool of its first piece that is this
 * domain's own.
 */
tranship_status tranship_aggregate(const struct tranship_pool *list_pool,
                                   struct tranship_buf *out,
                                   struct tranship_error **error);

/**
 * Adds a buffer at the end, frozen and without copying. `piece` then holds nothing; on failure (more than 4096 pieces)
 * it is as before.
 */
tranship_status tranship_aggregate_push_back(struct tranship_buf *aggregate,
                                             struct tranship_buf *piece,
                                             struct tranship_error **error);

/**
 * Adds a buffer in front, for example a header, frozen and without copying. `piece` then holds nothing; on failure
 * (more than 4096 pieces) it is as before.
 */
tranship_status tranship_aggregate_push_front(struct tranship_buf *aggregate,
                                              struct tranship_buf *piece,
                                              struct tranship_error **error);

/** Returns how many pieces an aggregate has. 0 of anything else. */
size_t tranship_aggregate_count(const struct tranship_buf *aggregate);

/**
 * Gives the address and the length of piece `at`, valid as long as the aggregate exists. tranship_copy_out copies from
 * all pieces.
 */
tranship_status tranship_aggregate_piece(const struct tranship_buf *aggregate,
                                         size_t at,
                                         const void **ptr,
                                         size_t *len,
                                         struct tranship_error **error);

/**
 * Gives another handle of piece `at`, as tranship_buf_clone does: a shared buf, which outlives the aggregate. `out` need
 * not be initialised.
 */
tranship_status tranship_aggregate_clone_piece(const struct tranship_buf *aggregate,
                                               size_t at,
                                               struct tranship_buf *out,
                                               struct tranship_error **error);

/**
 * Releases the content: the memory goes back to its pool when no domain has it any more. An empty buf and NULL are
 * fine.
 */
void tranship_release(struct tranship_buf *buf);

/** Ends writing: from here on the buffer can be shared (tranship_buf_clone), and tranship_send shares it. */
tranship_status tranship_freeze(struct tranship_buf *buf,
                                struct tranship_error **error);

/**
 * Makes a frozen buffer writable again, without copying, if it was never sent and this is its only handle. Any other
 * buffer is as before: TRANSHIP_ERR_BUFFER_STATE. A sent buffer is never written again under its name: allocate
 * another one.
 */
tranship_status tranship_unfreeze(struct tranship_buf *buf,
                                  struct tranship_error **error);

/** Makes one more handle of a shared buffer, in `out`, which is another struct. Release both. */
tranship_status tranship_buf_clone(const struct tranship_buf *buf,
                                   struct tranship_buf *out,
                                   struct tranship_error **error);

/**
 * Makes a handle of a part of a shared buffer, `len` bytes from `at` on, in `out`, which is another struct. No byte is
 * copied.
 */
tranship_status tranship_buf_slice(const struct tranship_buf *buf,
                                   size_t at,
                                   size_t len,
                                   struct tranship_buf *out,
                                   struct tranship_error **error);

/**
 * Returns the name of a buffer, the same in every process: pool, slot, generation. Of kind TRANSHIP_BUF_RELEASED it is
 * the name of the released buffer, if that has one. 0 of anything else. Any thread.
 */
uint64_t tranship_buf_id(const struct tranship_buf *buf);

/**
 * Copies `len` bytes from `at` on to `to`, out of a buffer, inline bytes, or an aggregate. Safe against a writer that
 * changes them meanwhile: check what you copied, not what you copy from. TRANSHIP_ERR_BAD_ARGUMENT if there are fewer
 * bytes: then nothing is copied.
 */
tranship_status tranship_copy_out(const struct tranship_buf *buf,
                                  size_t at,
                                  void *to,
                                  size_t len,
                                  struct tranship_error **error);

/**
 * Joins the manager that `options` name (NULL: the one in TRANSHIP_SOCKET, else the system's, else the user's), or starts one, which
 * leaves 60 s after its last client. The program `tranship` is looked for in TRANSHIP_BIN, beside the calling program, in the PATH.
 *
 * Close it with tranship_domain_close.
 */
tranship_status tranship_connect(const struct tranship_domain_options *options,
                                 struct tranship_domain **out,
                                 struct tranship_error **error);

/**
 * Starts a manager as a thread of this process, and joins it. Other processes join by its socket
 * (tranship_domain_socket). It isolates no domain from this process.
 */
tranship_status tranship_embedded(const struct tranship_domain_options *options,
                                  struct tranship_domain **out,
                                  struct tranship_error **error);

/**
 * Leaves, as soon as its pools, channels and buffers are gone, too. They may be closed in any order. NULL is nothing.
 *
 * Call it when no other call with this handle is under way or will begin; a thread that is to stop waits in turns, or by tranship_poll.
 */
void tranship_domain_close(struct tranship_domain *domain);

/** Returns the number by which the manager and other domains know this one. 0 of NULL. */
uint32_t tranship_domain_id(const struct tranship_domain *domain);

/**
 * Copies the path of the manager's socket to `to`, as much as has room, with a 0 at its end. Returns its whole length,
 * as snprintf(3) does: if `room` is not larger than that, the path was cut. 0: there is no path.
 */
size_t tranship_domain_socket(const struct tranship_domain *domain,
                              char *to,
                              size_t room);

/**
 * Returns a descriptor for poll(2) and epoll(7), readable when there is something to do: news of the manager (call
 * tranship_domain_turn), connections to accept, or messages for receivers that went to sleep by tranship_receiver_arm.
 * It is the library's: neither read it nor close it. -1 of NULL.
 */
int32_t tranship_domain_fd(const struct tranship_domain *domain);

/**
 * Does the manager's queued requests, without waiting: maps, unmaps, gives memory back. All other calls do it now and
 * then. A program that makes no calls for long calls it when the descriptor is readable.
 */
tranship_status tranship_domain_turn(const struct tranship_domain *domain,
                                     struct tranship_error **error);

/**
 * Makes an inbox of what comes by `receiver`, in `out`. The receiver belongs to it from here on: do not use or close it.
 * The inbox keeps at most `most` messages of each channel that were not taken, beside those that still lie in the channel. On failure
 * the receiver stays the caller's.
 *
 * The sender sends a buffer by tranship_send, and then its tranship_buf_id by a pipe, a socket or a request. The ids are
 * the same in both programs where memory is shared: at addresses `shm:` and `local:`.
 *
 * Close it with tranship_inbox_close.
 */
tranship_status tranship_inbox_create(struct tranship_receiver *receiver,
                                      size_t most,
                                      struct tranship_inbox **out,
                                      struct tranship_error **error);

/** Adds another channel to an inbox, for example another sender's. The receiver belongs to the inbox from here on. */
tranship_status tranship_inbox_add(const struct tranship_inbox *inbox,
                                   struct tranship_receiver *receiver,
                                   struct tranship_error **error);

/**
 * Takes the message with the buffer of this id, in `out`, as of tranship_recv; an aggregate has the id of its first
 * piece. The sender sends the buffer before its id. Waits for the manager alone, if it has still to show the memory of a
 * message: 5 s for each channel. TRANSHIP_ERR_TIMED_OUT: it did not. TRANSHIP_ERR_STALE: no such buffer was sent here, or
 * it was taken as often as it was sent. TRANSHIP_ERR_LIMIT: too many messages were not taken
 * (tranship_inbox_clear).
 */
tranship_status tranship_inbox_take(const struct tranship_inbox *inbox,
                                    uint64_t id,
                                    struct tranship_buf *out,
                                    struct tranship_error **error);

/** Releases all messages that were received and not taken; returns how many. 0 of NULL. */
size_t tranship_inbox_clear(const struct tranship_inbox *inbox);

/** Closes it, and its channels; messages that were not taken are released. NULL is nothing. */
void tranship_inbox_close(struct tranship_inbox *inbox);

/**
 * Listens at a name. Other domains open channels there, of which this side has the `end` TRANSHIP_SENDER or
 * TRANSHIP_RECEIVER. `options` hold for each channel, and may be NULL.
 *
 * `name` is a name of this manager's, or an address: "local:NAME" is inside this process, "tcp:HOST:PORT/NAME" reaches other machines, with
 * TLS (docs/c.md).
 *
 * Close it with tranship_listener_close.
 */
tranship_status tranship_listen(const struct tranship_domain *domain,
                                const char *name,
                                uint32_t end,
                                const struct tranship_channel_options *options,
                                struct tranship_listener **out,
                                struct tranship_error **error);

/**
 * Withdraws the name. Channels that were accepted go on. NULL is nothing.
 *
 * Call it when no other call with this handle is under way or will begin; a thread that is to stop waits in turns, or by tranship_poll.
 */
void tranship_listener_close(struct tranship_listener *listener);

/**
 * Accepts the next connection of a listener with TRANSHIP_SENDER: gives its sending end. Waits for `timeout_ns`, as
 * tranship_alloc does. TRANSHIP_ERR_TIMED_OUT: no domain connected in time.
 */
tranship_status tranship_accept_sender(const struct tranship_listener *listener,
                                       int64_t timeout_ns,
                                       struct tranship_sender **out,
                                       struct tranship_error **error);

/**
 * Accepts the next connection of a listener with TRANSHIP_RECEIVER: gives its receiving end. Waits for `timeout_ns`,
 * as tranship_alloc does. TRANSHIP_ERR_TIMED_OUT: no domain connected in time.
 */
tranship_status tranship_accept_receiver(const struct tranship_listener *listener,
                                         int64_t timeout_ns,
                                         struct tranship_receiver **out,
                                         struct tranship_error **error);

/**
 * Opens the sending end of a channel to the domain that listens at `name`, a name or an address as of tranship_listen. Waits until a domain listens there, for
 * `timeout_ns` as tranship_alloc does.
 * `options` may be NULL.
 *
 * Close it with tranship_sender_close.
 */
tranship_status tranship_open_sender(const struct tranship_domain *domain,
                                     const char *name,
                                     const struct tranship_channel_options *options,
                                     int64_t timeout_ns,
                                     struct tranship_sender **out,
                                     struct tranship_error **error);

/**
 * Opens the receiving end of a channel to the domain that listens at `name`, a name or an address as of tranship_listen. Waits until a domain listens there, for
 * `timeout_ns` as tranship_alloc does.
 * `options` may be NULL.
 *
 * Close it with tranship_receiver_close.
 */
tranship_status tranship_open_receiver(const struct tranship_domain *domain,
                                       const char *name,
                                       const struct tranship_channel_options *options,
                                       int64_t timeout_ns,
                                       struct tranship_receiver **out,
                                       struct tranship_error **error);

/**
 * Waits for `timeout_ns`, as tranship_alloc does, until at least one of `count` items is ready; sets `ready` of each,
 * and `*ready` to the number of ready items: 0 when the time is over. Takes the manager's news meanwhile. A handle may
 * be in one item only.
 */
tranship_status tranship_poll(struct tranship_poll_item *items,
                              size_t count,
                              int64_t timeout_ns,
                              size_t *ready,
                              struct tranship_error **error);

/**
 * Makes a pool of at most `max_bytes`. Memory comes and goes with use, within what the manager admits. `options` may be NULL.
 *
 * Close it with tranship_pool_close.
 */
tranship_status tranship_pool_create(const struct tranship_domain *domain,
                                     uint64_t max_bytes,
                                     const struct tranship_pool_options *options,
                                     struct tranship_pool **out,
                                     struct tranship_error **error);

/**
 * Gives the pool up. It is taken down as soon as no domain holds a buffer of it. NULL is nothing.
 *
 * Call it when no other call with this handle is under way or will begin; a thread that is to stop waits in turns, or by tranship_poll.
 */
void tranship_pool_close(struct tranship_pool *pool);

/**
 * Allocates a buffer of `len` bytes, in `buf`: `buf->ptr` may be written. It begins with the old contents of its
 * memory.
 *
 * Waits for memory for `timeout_ns` nanoseconds: TRANSHIP_NOW (0) not at all, TRANSHIP_FOREVER (-1) without end. Any
 * other number below 0 is TRANSHIP_NOW: a deadline that has passed. A buffer that can never fit is an error at once.
 * `buf` need not be initialised; an old content is not released. On failure it holds nothing.
 */
tranship_status tranship_alloc(const struct tranship_pool *pool,
                               size_t len,
                               int64_t timeout_ns,
                               struct tranship_buf *buf,
                               struct tranship_error **error);

/** The pool's number, the same in every process. 0 of NULL. */
uint32_t tranship_pool_id(const struct tranship_pool *pool);

/**
 * Finds a sent buffer of this pool by its name (tranship_buf_id), as long as it is not reused: a shared one, in `out`.
 * TRANSHIP_ERR_STALE if the name is no buffer's any more.
 */
tranship_status tranship_pool_lookup(const struct tranship_pool *pool,
                                     uint64_t id,
                                     struct tranship_buf *out,
                                     struct tranship_error **error);

/** Lets another domain (tranship_sender_peer) send buffers of this pool on. */
tranship_status tranship_pool_allow_forward(const struct tranship_pool *pool,
                                            uint32_t domain_id,
                                            struct tranship_error **error);

/** Closes it. Received buffers stay. NULL is nothing. */
void tranship_receiver_close(struct tranship_receiver *receiver);

/**
 * Receives the next message, in `out`: a shared buffer (the kernel prevents writes), a buffer that was moved here,
 * inline bytes, or an aggregate, as `out->kind` says. `out->word` is the sender's word. Release it by
 * tranship_release.
 *
 * Waits for `timeout_ns`, as tranship_alloc does: TRANSHIP_ERR_TIMED_OUT if nothing came. TRANSHIP_ERR_PEER_GONE: all
 * was received, and the sender has closed in order; TRANSHIP_ERR_PEER_DIED: the sender died, and messages may be
 * missing. Signal handlers run meanwhile, and the wait goes on.
 *
 * `out` need not be initialised; an old content is not released. On failure it holds nothing.
 */
tranship_status tranship_recv(struct tranship_receiver *receiver,
                              int64_t timeout_ns,
                              struct tranship_buf *out,
                              struct tranship_error **error);

/**
 * Receives all messages that are there, at most `count` of them, in `out[0]` and so on, each as of tranship_recv; `*received` is how many. Waits for the first as
 * tranship_recv does. The sender gets the places of plain messages back together, by one wake-up.
 *
 * On failure `*received` is 0. Bufs from `*received` on hold nothing, and need not be released.
 */
tranship_status tranship_recv_many(struct tranship_receiver *receiver,
                                   int64_t timeout_ns,
                                   struct tranship_buf *out,
                                   size_t count,
                                   size_t *received,
                                   struct tranship_error **error);

/**
 * Hands back a buffer that was given to this receiver, with the word `buf->word`: the sender, whose pool it is of,
 * gets it from tranship_recv_back. A buffer of kind TRANSHIP_BUF_SHARED is handed back if it was given away and this
 * handle arrived: clones, parts and shared buffers are TRANSHIP_ERR_BUFFER_NOT_OWNED. Inline bytes are copied. `buf`
 * then holds nothing; on failure it is as before.
 *
 * Waits for room on the way back for `timeout_ns`, as tranship_alloc does: TRANSHIP_ERR_FULL if there is none. A receiver that must
 * not wait for its sender says TRANSHIP_NOW: two ends that wait for each other wait for ever.
 */
tranship_status tranship_send_back(struct tranship_receiver *receiver,
                                   struct tranship_buf *buf,
                                   int64_t timeout_ns,
                                   struct tranship_error **error);

/**
 * Releases a content that came by this channel, as tranship_release does, and tells the sender: it gets the word
 * `buf->word`, as TRANSHIP_BUF_RELEASED from tranship_recv_back. Waits for room on the way back for `timeout_ns`, as
 * tranship_send_back does. `buf` then holds nothing; on failure it is as before.
 */
tranship_status tranship_send_back_released(struct tranship_receiver *receiver,
                                            struct tranship_buf *buf,
                                            int64_t timeout_ns,
                                            struct tranship_error **error);

/** Sends up to TRANSHIP_INLINE_BYTES bytes back to the sender, with a word. Waits for room on the way back for `timeout_ns`, as tranship_send_back does. */
tranship_status tranship_send_back_bytes(struct tranship_receiver *receiver,
                                         const void *data,
                                         size_t len,
                                         uint64_t word,
                                         int64_t timeout_ns,
                                         struct tranship_error **error);

/**
 * Says that this end goes to sleep on the domain's descriptor (tranship_domain_fd). `may_sleep` is 1 if it may; 0 if a message, or the
 * end, is there already: receive first. From the first call on, messages show on that descriptor. Call it before each wait.
 * tranship_poll does so by itself.
 */
tranship_status tranship_receiver_arm(struct tranship_receiver *receiver,
                                      int32_t *may_sleep,
                                      struct tranship_error **error);

/** Says that this end is awake again. */
void tranship_receiver_disarm(struct tranship_receiver *receiver);

/**
 * Returns how many messages this receiver has skipped, because newer ones were there and the sender has
 * TRANSHIP_WHEN_FULL_DROP_OLDEST. 0 of NULL.
 */
uint64_t tranship_receiver_skipped(const struct tranship_receiver *receiver);

/** Returns the sender's domain. 0 of NULL. */
uint32_t tranship_receiver_peer(const struct tranship_receiver *receiver);

/**
 * Ends the channel in order: the receiver gets all that was sent, and then TRANSHIP_ERR_PEER_GONE. (A process that
 * ends without this call leaves it with TRANSHIP_ERR_PEER_DIED: messages may be missing.) NULL is nothing.
 */
void tranship_sender_close(struct tranship_sender *sender);

/**
 * Ends the channel although the data is incomplete: the receiver gets the sent messages, and then
 * TRANSHIP_ERR_PEER_DIED. NULL is nothing.
 */
void tranship_sender_abandon(struct tranship_sender *sender);

/**
 * Sets the action of a send with TRANSHIP_FOREVER on a full channel from now on. A send waits for the receiver's
 * consent to a new pool in all modes. TRANSHIP_ERR_BAD_ARGUMENT for an unknown mode.
 */
tranship_status tranship_sender_set_when_full(struct tranship_sender *sender,
                                              uint32_t when_full,
                                              struct tranship_error **error);

/** Returns how many messages this sender has dropped. 0 of NULL. */
uint64_t tranship_sender_dropped(const struct tranship_sender *sender);

/**
 * Allocates a buffer of `len` bytes from the channel's own pool, in `buf`. Only the receiver can read it, and it goes
 * over this channel only. The first call makes the pool. Waits for memory for `timeout_ns`, as tranship_alloc does.
 * `buf` need not be initialised; an old content is not released. On failure it holds nothing.
 */
tranship_status tranship_sender_alloc(struct tranship_sender *sender,
                                      size_t len,
                                      int64_t timeout_ns,
                                      struct tranship_buf *buf,
                                      struct tranship_error **error);

/**
 * Sends the contents of `buf`, with the word `buf->word`. A buffer of kind TRANSHIP_BUF_EXCLUSIVE is given away; after tranship_freeze it is shared,
 * as every other buffer. An aggregate is shared, and inline bytes are copied. No byte of a buffer is copied. `buf` then holds nothing; keep a handle by
 * tranship_buf_clone if it is still needed.
 *
 * Waits for room for `timeout_ns`, as tranship_alloc does. On failure (TRANSHIP_ERR_FULL, TRANSHIP_ERR_PEER_GONE, ...) `buf` is as before.
 */
tranship_status tranship_send(struct tranship_sender *sender,
                              struct tranship_buf *buf,
                              int64_t timeout_ns,
                              struct tranship_error **error);

/**
 * Sends the contents of `count` bufs, each as tranship_send does, with one fence and at most one wake-up of the
 * receiver. `*sent`, if it is not NULL, is the number of sent messages, dropped ones included; these bufs hold
 * nothing. The bufs after them are as before.
 *
 * Waits for room for `timeout_ns`, as tranship_alloc does, for all of them together: TRANSHIP_ERR_FULL when not all went. With TRANSHIP_NOW it sends as many
 * as there is room for.
 */
tranship_status tranship_send_many(struct tranship_sender *sender,
                                   struct tranship_buf *bufs,
                                   size_t count,
                                   int64_t timeout_ns,
                                   size_t *sent,
                                   struct tranship_error **error);

/**
 * Sends up to TRANSHIP_INLINE_BYTES bytes inside the message itself, with a word: no pool, no buffer. Waits and fails as tranship_send does;
 * TRANSHIP_ERR_TOO_LARGE for more bytes.
 */
tranship_status tranship_send_bytes(struct tranship_sender *sender,
                                    const void *data,
                                    size_t len,
                                    uint64_t word,
                                    int64_t timeout_ns,
                                    struct tranship_error **error);

/**
 * Receives the next reply of the receiver: a few bytes (tranship_send_back_bytes), a buffer (tranship_send_back), or a
 * release (tranship_send_back_released). Waits for it for `timeout_ns` as tranship_recv does: TRANSHIP_ERR_TIMED_OUT
 * if nothing has come by then. Replies of a receiver that is gone can still be taken; after them
 * TRANSHIP_ERR_PEER_GONE, and with TRANSHIP_NOW TRANSHIP_ERR_TIMED_OUT. `out` is filled as by tranship_recv.
 */
tranship_status tranship_recv_back(struct tranship_sender *sender,
                                   int64_t timeout_ns,
                                   struct tranship_buf *out,
                                   struct tranship_error **error);

/**
 * Asks the receiver to take a pool, ahead of the first send out of it. With TRANSHIP_NOW it does not wait: TRANSHIP_ERR_POOL_PENDING if the
 * receiver has still to answer, which it does when it next calls the library; call it again. Else it waits for that, for `timeout_ns`:
 * TRANSHIP_ERR_TIMED_OUT.
 */
tranship_status tranship_assign(struct tranship_sender *sender,
                                const struct tranship_pool *pool,
                                int64_t timeout_ns,
                                struct tranship_error **error);

/** Waits until the receiver has taken all that was sent, for `timeout_ns` as tranship_alloc does. */
tranship_status tranship_wait_taken(struct tranship_sender *sender,
                                    int64_t timeout_ns,
                                    struct tranship_error **error);

/** Returns how many messages the receiver has not taken yet. */
uint64_t tranship_sender_queued(const struct tranship_sender *sender);

/** Returns the receiver's domain. 0 of NULL. */
uint32_t tranship_sender_peer(const struct tranship_sender *sender);

/** Returns the kind of an error; of NULL, `TRANSHIP_OK`. Any thread. */
tranship_status tranship_error_status(const struct tranship_error *error);

/**
 * Returns the text of an error: what is wrong, with figures, and what would be right. It is one line in English,
 * without a line end, valid as long as the error. Any thread.
 */
const char *tranship_error_message(const struct tranship_error *error);

/**
 * Returns a number of errno(3): the kernel's own if that is the cause, else the nearest to the kind (`EAGAIN`,
 * `EPIPE`, ...). Any thread.
 */
int32_t tranship_error_errno(const struct tranship_error *error);

/** Frees an error. NULL is nothing. */
void tranship_error_free(struct tranship_error *error);

/** Returns the meaning of a status, as a fixed text. Any thread. */
const char *tranship_strerror(tranship_status status);

/** Returns advice for a status, as a fixed text. Any thread. */
const char *tranship_advice(tranship_status status);

/** Returns the library's version, as "0.1.0". Any thread. */
const char *tranship_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The bytes of a buffer, a message or inline bytes, buf->len of them; NULL of an aggregate (tranship_aggregate_piece,
 * tranship_copy_out). They are there until the buf is sent or released. Inline bytes are inside the struct.
 */
static inline void *tranship_data(const tranship_buf *buf)
{
    return buf->kind == TRANSHIP_BUF_INLINE ? (void *)(uintptr_t)buf->words : buf->ptr;
}

#ifdef __cplusplus
}
#endif

#endif  /* TRANSHIP_H */
