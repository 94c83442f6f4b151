/* Network Connections without blocking, served by one epoll loop in one thread. */
#ifndef CONNECTION_H
#define CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum progress { CONNECTING, CONNECTED, SUBSCRIBED };

typedef struct connection connection;
struct transport;

/* Called for each complete packet: its first byte, and the bytes after the Remaining Length. */
typedef void (*packet_handler)(connection *, uint8_t header, const uint8_t *body, uint32_t length);

struct connection {
    int fd;
    int number;  /* its place among its kind */
    int version; /* 4 is MQTT 3.1.1, 5 is MQTT 5.0 */
    enum progress progress;
    bool closed;      /* by the broker, or because of an error */
    bool wants_write; /* epoll tells when the socket takes bytes again */
    const struct transport *transport;
    void *layer;  /* of the transport */
    bool opening; /* the transport's own handshake goes on: no MQTT is sent yet */
    packet_handler handle;
    void (*readable)(connection *); /* receive, but for a listener */
    void (*lost)(connection *);     /* called once after the end, if set */
    uint8_t *input;
    size_t input_length, input_capacity;
    uint8_t *output; /* the unsent bytes are output[output_start] to output[output_end - 1] */
    size_t output_start, output_end, output_capacity;
    size_t output_sealed; /* for transports that seal: the bytes before are ready to be sent */
    uint64_t messages; /* PUBLISH packets received */
    uint64_t began;    /* when the connection was opened */
    long receive_maximum;
    long unacknowledged; /* QoS 1 messages sent without a PUBACK so far */
    uint16_t packet_id;  /* the last one used */
    int qos;             /* of its subscription */
    const void *canned;  /* bytes that the null broker still has to send, and their number */
    size_t canned_left;
};

void open_loop(void);
uint64_t deadline(void); /* --timeout: the end of the whole scenario */

connection *new_connection(int fd, packet_handler handle, size_t input_capacity);

/* Begin to connect to --port by plain TCP, without waiting. */
connection *begin_connection(packet_handler handle, size_t input_capacity);

/* Begin to connect to a port by this transport. */
connection *begin_connection_by(const struct transport *by, long port, packet_handler handle, size_t input_capacity);

/* Close a connection without DISCONNECT, and free it. Not to be called by its own functions, nor while `serve` runs. */
void end_connection(connection *c);

/* Add a connection, or another file, to the epoll loop. */
void watch(int fd, void *data);
void watch_writes(connection *c, bool wanted);

/* Make room for `size` more bytes of output, and return the place. The caller then adds to output_end. */
uint8_t *reserve_output(connection *c, size_t size);
void put(connection *c, const void *bytes, size_t size);
size_t unsent(const connection *c);

/* Send what the socket takes. */
void flush(connection *c);

/* Read once, and handle the complete packets. */
void receive(connection *c);

/* Serve the ready connections once; wait for one for at most so many nanoseconds. */
void serve(uint64_t nanoseconds);

#endif
