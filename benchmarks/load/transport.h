/* How the bytes of a Network Connection travel: by plain TCP, TLS or WebSocket. */
#ifndef TRANSPORT_H
#define TRANSPORT_H

#include <sys/types.h>

#include "connection.h"

/* The functions that are NULL do nothing. */
typedef struct transport {
    void (*begin)(connection *); /* called once, when the socket connects */
    /* Called while `opening` is true, whenever the socket may be ready. Sets `opening` to false when MQTT may be sent,
     * or `closed`, or tells by watch_writes what it waits for. */
    void (*open)(connection *);
    void (*seal)(connection *); /* turn the output from output_sealed on into what is sent */
    ssize_t (*send)(connection *, const void *bytes, size_t size); /* these two are like send and recv of a socket */
    ssize_t (*receive)(connection *, void *at, size_t room);
    bool (*pending)(connection *); /* whether there is input that epoll does not tell of */
    void (*end)(connection *);     /* free what `begin` has made */
} transport;

extern const transport plain, tls, websocket;

/* --tls and --websocket: how the devices of the scenario connect. Fails if both are asked for. */
const transport *device_transport(void);

ssize_t send_plainly(connection *c, const void *bytes, size_t size);

/* Whether a call that moved no bytes can be repeated later, by errno. */
bool is_not_ready(void);

/* The last TLS session that the broker gave the client, for its next connection; NULL if there is none. The caller
 * hands it to offer_session. */
void *take_session(connection *c);

/* Ask to resume this session. Called after begin_connection and before the first flush. NULL asks for nothing. */
void offer_session(connection *c, void *session);

/* Whether the connection has resumed the session that it offered. */
bool is_resumed(const connection *c);

#endif
