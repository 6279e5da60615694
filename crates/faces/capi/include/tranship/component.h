/*
 * tranship: components of `tranship run`, which find their ends by their names.
 *
 * Made from the source by `cargo run -p xtask -- header write`; tranship_component(3) is the manual.
 */

#ifndef TRANSHIP_COMPONENT_H
#define TRANSHIP_COMPONENT_H

#include "../tranship.h"

#include "queue.h"
#include "service.h"
#include "topic.h"

typedef struct tranship_component tranship_component;


/** A process of a program that `tranship run` started. Any thread may use it, all at the same time. */
struct tranship_component;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Joins the program's manager, with what the environment says about this component. Waits at most 10 s for a manager that is being started again.
 * TRANSHIP_ERR_BAD_ARGUMENT in a process that `tranship run` did not start.
 *
 * Close it with tranship_component_close.
 */
tranship_status tranship_component_connect(struct tranship_component **out,
                                           tranship_error **error);

/** Leaves, as soon as its ends are closed, too. Channels of which this component is the sender are no longer offered. NULL is nothing. */
void tranship_component_close(struct tranship_component *component);

/** The component's membership, for all that the file does not say: pools, polling. Close it with tranship_domain_close. */
tranship_status tranship_component_domain(const struct tranship_component *component,
                                          tranship_domain **out,
                                          tranship_error **error);

/**
 * The sending end of a channel, by the component's name of it. Waits for the receiver's component for `timeout_ns`, as tranship_alloc does. The first
 * call offers the channel. tranship_sender_alloc allocates from the pool that the file describes.
 *
 * The end ends with its receiver: TRANSHIP_ERR_PEER_DIED, TRANSHIP_ERR_PEER_GONE. If the file starts that component again, another call gives
 * the end to the next one. Close it with tranship_sender_close. TRANSHIP_ERR_BAD_ARGUMENT for a name that the file does not give to this component.
 */
tranship_status tranship_component_sender(const struct tranship_component *component,
                                          const char *end,
                                          int64_t timeout_ns,
                                          tranship_sender **out,
                                          tranship_error **error);

/**
 * The receiving end of a channel, by the component's name of it. Waits for the sender's component for `timeout_ns`, as tranship_alloc does.
 *
 * The end ends with its sender; another call gives the end of the next one. Close it with tranship_receiver_close.
 */
tranship_status tranship_component_receiver(const struct tranship_component *component,
                                            const char *end,
                                            int64_t timeout_ns,
                                            tranship_receiver **out,
                                            tranship_error **error);

/** Publishes a topic, by the component's name of it. Close it with tranship_publisher_close. */
tranship_status tranship_component_publisher(const struct tranship_component *component,
                                             const char *end,
                                             tranship_publisher **out,
                                             tranship_error **error);

/** Subscribes to a topic, by the component's name of it, and returns at once: it joins while it receives. Close it with tranship_subscriber_close. */
tranship_status tranship_component_subscriber(const struct tranship_component *component,
                                              const char *end,
                                              tranship_subscriber **out,
                                              tranship_error **error);

/** Joins a queue as a producer, by the component's name of it. Close it with tranship_producer_close. */
tranship_status tranship_component_producer(const struct tranship_component *component,
                                            const char *end,
                                            tranship_producer **out,
                                            tranship_error **error);

/** Joins a queue as a consumer, by the component's name of it, and returns at once: it joins while it receives. Close it with tranship_consumer_close. */
tranship_status tranship_component_consumer(const struct tranship_component *component,
                                            const char *end,
                                            tranship_consumer **out,
                                            tranship_error **error);

/** Serves a service, by the component's name of it. Replicas serve it together. Close it with tranship_service_close. */
tranship_status tranship_component_service(const struct tranship_component *component,
                                           const char *end,
                                           tranship_service **out,
                                           tranship_error **error);

/** Opens a client of a service, by the component's name of it. Waits until the service is there. Close it with tranship_client_close. */
tranship_status tranship_component_client(const struct tranship_component *component,
                                          const char *end,
                                          tranship_client **out,
                                          tranship_error **error);

/**
 * Says that this component is ready, so that components that depend on it are started. If the file says `lock`, the process is locked down first:
 * call it when everything is open, before other threads start. It does not block.
 */
tranship_status tranship_component_ready(const struct tranship_component *component,
                                         tranship_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TRANSHIP_COMPONENT_H */
