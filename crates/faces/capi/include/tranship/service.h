/*
 * tranship: services: requests and answers. A name has many clients and any number of workers.
 *
 * Made from the source by `cargo run -p xtask -- header write`; tranship_service(3) is the manual.
 */

#ifndef TRANSHIP_SERVICE_H
#define TRANSHIP_SERVICE_H

#include "../tranship.h"

typedef struct tranship_service tranship_service;
typedef struct tranship_request tranship_request;
typedef struct tranship_client tranship_client;
typedef struct tranship_call tranship_call;
typedef struct tranship_service_options tranship_service_options;


/** In `flags` of tranship_service_options: services of other domains may have the name too, if all of them say this. A client is connected to all of them. */
#define TRANSHIP_SERVICE_SHARED 1

/** A call in flight. */
struct tranship_call;

/** A client of a service. Any thread may call, all at the same time. */
struct tranship_client;

/** A request that a worker has taken. */
struct tranship_request;

/** A service. Any number of threads may take requests, all at the same time: the idle one gets the next. */
struct tranship_service;

/** A service, or a client of one. Set `size` to `sizeof(struct tranship_service_options)`; all else may be 0. */
struct tranship_service_options {
    /** sizeof(struct tranship_service_options) */
    size_t size;
    /** Depth of the channels: a power of two, 4 to 65,536. A client has at most half as many calls in flight. 0: 256. */
    uint32_t lines;
    /** TRANSHIP_WAIT_SPIN_THEN_SLEEP, TRANSHIP_WAIT_SPIN, TRANSHIP_WAIT_SLEEP: how this side waits. 0: the first. */
    uint32_t wait;
    /** How often it looks before it sleeps. 0: 500. */
    uint32_t spins;
    /** The most clients of one user that a service has at a time. 0: 64. */
    uint32_t clients_per_user;
    /** The type of requests, as a text that both sides must have alike (docs/types.md). NULL for bytes; with it, `answer_type` is needed. */
    const char *request_type;
    /** The type of answers. */
    const char *answer_type;
    /** TRANSHIP_SERVICE_SHARED, or 0. A client says 0. */
    uint32_t flags;
    /** 0. */
    uint32_t reserved;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Offers a service at a name. It takes the names NAME and NAME/replies. `options` may be NULL.
 *
 * Close it with tranship_service_close.
 */
tranship_status tranship_serve(const tranship_domain *domain,
                               const char *name,
                               const struct tranship_service_options *options,
                               struct tranship_service **out,
                               tranship_error **error);

/** Ends the service. A request that was taken can still be answered; other calls fail. NULL is nothing. */
void tranship_service_close(struct tranship_service *service);

/**
 * The next request, in `out`. Waits for it for `timeout_ns`: TRANSHIP_ERR_TIMED_OUT. End it with tranship_request_reply,
 * tranship_request_fail or tranship_request_close.
 */
tranship_status tranship_service_recv(const struct tranship_service *service,
                                      int64_t timeout_ns,
                                      struct tranship_request **out,
                                      tranship_error **error);

/** Takes what the client sent, into `out`, as of tranship_recv. A second call gives inline bytes of length 0. */
tranship_status tranship_request_take(struct tranship_request *request,
                                      tranship_buf *out,
                                      tranship_error **error);

/**
 * A buffer of `len` bytes for the answer, in `buf`, which only the client can read. Waits at most 5 s for a client that keeps its earlier
 * answers: TRANSHIP_ERR_OUT_OF_MEMORY. `buf` need not be initialised. On failure it holds nothing.
 */
tranship_status tranship_request_alloc(const struct tranship_request *request,
                                       size_t len,
                                       tranship_buf *buf,
                                       tranship_error **error);

/** The number of the called method, 0 to 127; 0 of NULL. */
uint32_t tranship_request_method(const struct tranship_request *request);

/** The client's process. 0 of NULL. */
uint32_t tranship_request_client_pid(const struct tranship_request *request);

/** 1 if nobody waits for the answer any more: the call was cancelled, its time is over, or its client is gone. 1 of NULL. */
int32_t tranship_request_is_cancelled(const struct tranship_request *request);

/**
 * Answers with the contents of `buf`, as of tranship_send, and closes the request, also if this fails: then the client is told that the request was
 * let go, and `buf` is as before. Waits at most 5 s for a client that has to agree to a pool.
 */
tranship_status tranship_request_reply(struct tranship_request *request,
                                       tranship_buf *buf,
                                       tranship_error **error);

/**
 * Answers with an error of the service's own: the contents of `buf`. The client gets TRANSHIP_ERR_REFUSED, and the contents. Else as
 * tranship_request_reply.
 */
tranship_status tranship_request_fail(struct tranship_request *request,
                                      tranship_buf *buf,
                                      tranship_error **error);

/**
 * Sends an item of a call with streams to the client, the contents of `buf`, as of tranship_send. Waits until the client has taken enough of the earlier
 * ones, for `timeout_ns`: TRANSHIP_ERR_TIMED_OUT. TRANSHIP_ERR_PEER_GONE: nobody waits for the call any more. `buf` then holds nothing; on failure it is as
 * before.
 */
tranship_status tranship_request_send(const struct tranship_request *request,
                                      tranship_buf *buf,
                                      int64_t timeout_ns,
                                      tranship_error **error);

/**
 * The next item that the client sends, in `out`, as of tranship_recv; kind TRANSHIP_BUF_NONE when the client has finished. Waits as tranship_request_send
 * does, and fails as it does.
 */
tranship_status tranship_request_recv(const struct tranship_request *request,
                                      int64_t timeout_ns,
                                      tranship_buf *out,
                                      tranship_error **error);

/** Lets a request go: the client gets TRANSHIP_ERR_PEER_DIED. NULL is nothing. */
void tranship_request_close(struct tranship_request *request);

/**
 * Connects to a service. Waits until it is there and takes this client, for `timeout_ns`. `options` may be NULL.
 *
 * Close it with tranship_client_close.
 */
tranship_status tranship_open_client(const tranship_domain *domain,
                                     const char *name,
                                     const struct tranship_service_options *options,
                                     int64_t timeout_ns,
                                     struct tranship_client **out,
                                     tranship_error **error);

/** Closes it. Calls in flight go on. NULL is nothing. */
void tranship_client_close(struct tranship_client *client);

/** How many processes are connected that serve the name. Looks for further ones of a shared name. 0 of NULL. */
size_t tranship_client_workers(const struct tranship_client *client);

/**
 * A buffer of `len` bytes for a request, in `buf`, which only the service can read. Waits for memory that the service holds. `buf` need not
 * be initialised. On failure it holds nothing.
 */
tranship_status tranship_client_alloc(const struct tranship_client *client,
                                      size_t len,
                                      tranship_buf *buf,
                                      tranship_error **error);

/**
 * Calls method number `method` (0 to 127) with the contents of `buf`, as of tranship_send, and waits for the answer, in `answer`, for `timeout_ns`. The time
 * travels along: no worker takes a request whose time is over. `buf` then holds nothing, also after a failure, unless the request was not sent.
 *
 * TRANSHIP_ERR_REFUSED: the service answered with an error of its own, which is in `answer`. TRANSHIP_ERR_PEER_DIED: its process died, or let the
 * request go; TRANSHIP_ERR_PEER_GONE: it has ended; TRANSHIP_ERR_TIMED_OUT: the time is over, and the call is cancelled. `answer` need not be
 * initialised, and then holds nothing.
 * It is another struct than `buf`: else TRANSHIP_ERR_BAD_ARGUMENT.
 */
tranship_status tranship_client_call(const struct tranship_client *client,
                                     uint32_t method,
                                     tranship_buf *buf,
                                     int64_t timeout_ns,
                                     tranship_buf *answer,
                                     tranship_error **error);

/**
 * Sends a request as tranship_client_call does, and does not wait for its answer: tranship_call_wait does. Several calls may be in flight.
 *
 * Close it with tranship_call_close.
 */
tranship_status tranship_client_begin(const struct tranship_client *client,
                                      uint32_t method,
                                      tranship_buf *buf,
                                      int64_t timeout_ns,
                                      struct tranship_call **out,
                                      tranship_error **error);

/**
 * Begins a call that carries any number of messages either way before its answer: tranship_call_send and tranship_call_finish, tranship_call_recv. Else as
 * tranship_client_begin.
 *
 * At most 8 items of a direction are on their way, or have come and were not taken: a sender of one more waits.
 */
tranship_status tranship_client_begin_streams(const struct tranship_client *client,
                                              uint32_t method,
                                              tranship_buf *buf,
                                              int64_t timeout_ns,
                                              struct tranship_call **out,
                                              tranship_error **error);

/**
 * Sends an item of a call with streams, the contents of `buf`, as of tranship_send. Waits until the service has taken enough of the earlier ones, until the
 * call's own time is over. TRANSHIP_ERR_CHANNEL_STATE: the call is over, and tranship_call_wait says how. `buf` then holds nothing; on failure it is as before.
 */
tranship_status tranship_call_send(const struct tranship_call *call,
                                   tranship_buf *buf,
                                   tranship_error **error);

/** Says that no further item comes: tranship_request_recv ends. Of NULL, and of a call without streams, it does nothing. */
void tranship_call_finish(const struct tranship_call *call);

/**
 * The next item that the service sends, in `out`, as of tranship_recv; kind TRANSHIP_BUF_NONE when the call is over, and tranship_call_wait says how. Waits for
 * `timeout_ns`: TRANSHIP_ERR_TIMED_OUT.
 */
tranship_status tranship_call_recv(const struct tranship_call *call,
                                   int64_t timeout_ns,
                                   tranship_buf *out,
                                   tranship_error **error);

/**
 * Waits for the answer of a call, in `answer`, for `timeout_ns`, and fails as tranship_client_call does. After TRANSHIP_ERR_TIMED_OUT it can be waited
 * for again, until the call's own time is over; after anything else TRANSHIP_ERR_BAD_ARGUMENT.
 */
tranship_status tranship_call_wait(struct tranship_call *call,
                                   int64_t timeout_ns,
                                   tranship_buf *answer,
                                   tranship_error **error);

/** Closes it. A call whose answer was not taken is cancelled: the service is told. NULL is nothing. */
void tranship_call_close(struct tranship_call *call);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TRANSHIP_SERVICE_H */
