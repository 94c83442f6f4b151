#include "packets.h"

#include <string.h>

#include "figures.h"
#include "options.h"

#define RECEIVE_MAXIMUM 0x21
#define KEEP_ALIVE 600

static size_t write_length(uint8_t *at, uint32_t length) {
    size_t size = 0;
    do {
        at[size] = (uint8_t)(length & 0x7f);
        length >>= 7;
        if (length) at[size] |= 0x80;
        size++;
    } while (length);
    return size;
}

static uint32_t read_length(const uint8_t **at) {
    uint32_t length = 0;
    for (unsigned shift = 0; shift < 28; shift += 7) {
        uint8_t byte = *(*at)++;
        length |= (uint32_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) break;
    }
    return length;
}

static uint8_t *write_string(uint8_t *at, const void *text, size_t length) {
    *at++ = (uint8_t)(length >> 8);
    *at++ = (uint8_t)length;
    memcpy(at, text, length);
    return at + length;
}

/* Put a packet with this body. */
static void put_packet(connection *c, uint8_t header, const uint8_t *body, size_t length) {
    uint8_t head[5] = {header};
    put(c, head, 1 + write_length(head + 1, (uint32_t)length));
    put(c, body, length);
}

void put_connect(connection *c, const char *client_id) {
    uint8_t body[256];
    uint8_t *at = write_string(body, "MQTT", 4);
    *at++ = (uint8_t)c->version;
    *at++ = 0x02; /* Clean Start */
    *at++ = KEEP_ALIVE >> 8;
    *at++ = KEEP_ALIVE & 0xff;
    if (c->version == 5) *at++ = 0;
    at = write_string(at, client_id, strlen(client_id));
    put_packet(c, CONNECT, body, (size_t)(at - body));
}

void put_subscribe(connection *c, const char *filter, int qos) {
    uint8_t body[1024];
    uint16_t packet_id = next_packet_id(c);
    uint8_t *at = body;
    *at++ = (uint8_t)(packet_id >> 8);
    *at++ = (uint8_t)packet_id;
    if (c->version == 5) *at++ = 0;
    at = write_string(at, filter, strlen(filter));
    *at++ = (uint8_t)qos;
    c->qos = qos;
    put_packet(c, SUBSCRIBE | 2, body, (size_t)(at - body));
}

void put_puback(connection *c, const uint8_t *packet_id) {
    uint8_t packet[4] = {PUBACK, 2, packet_id[0], packet_id[1]};
    put(c, packet, sizeof packet);
}

void put_disconnect(connection *c) { put(c, (uint8_t[]){DISCONNECT, 0}, 2); }

size_t write_publish(uint8_t *at, int version, const void *topic, size_t topic_length, const void *payload,
                     size_t payload_length, int qos, int retain, uint16_t packet_id) {
    uint8_t *start = at;
    size_t length = 2 + topic_length + (qos ? 2 : 0) + (version == 5 ? 1 : 0) + payload_length;
    *at++ = (uint8_t)(PUBLISH | qos << 1 | retain);
    at += write_length(at, (uint32_t)length);
    at = write_string(at, topic, topic_length);
    if (qos) {
        *at++ = (uint8_t)(packet_id >> 8);
        *at++ = (uint8_t)packet_id;
    }
    if (version == 5) *at++ = 0;
    memcpy(at, payload, payload_length);
    return (size_t)(at + payload_length - start);
}

void put_publish(connection *c, const void *topic, size_t topic_length, const void *payload, size_t payload_length,
                 int qos, int retain) {
    uint8_t *at = reserve_output(c, topic_length + payload_length + 16);
    c->output_end += write_publish(at, c->version, topic, topic_length, payload, payload_length, qos, retain,
                                   qos ? next_packet_id(c) : 0);
}

uint16_t next_packet_id(connection *c) {
    if (++c->packet_id == 0) c->packet_id = 1;
    return c->packet_id;
}

publication read_publish(const connection *c, uint8_t header, const uint8_t *body, uint32_t length) {
    publication message = {.topic = body + 2, .topic_length = (uint32_t)(body[0] << 8 | body[1])};
    const uint8_t *at = message.topic + message.topic_length;
    if (header & QOS) {
        message.packet_id = at;
        at += 2;
    }
    if (c->version == 5) {
        uint32_t properties = read_length(&at);
        at += properties;
    }
    if (at > body + length) fail("a PUBLISH that is too short");
    message.payload = at;
    message.payload_length = (uint32_t)(body + length - at);
    return message;
}

void note_puback(connection *c, const uint8_t *body, uint32_t length) {
    if (length > 2 && body[2] >= 0x80) fail("PUBLISH refused: 0x%02x", body[2]);
    c->unacknowledged--;
}

/* The size of a property of a CONNACK, without its identifier [MQTT5-3.2.2.3]. */
static uint32_t property_size(uint8_t identifier, const uint8_t *value) {
    switch (identifier) {
    case 0x24: case 0x25: case 0x28: case 0x29: case 0x2a: return 1;
    case 0x13: case 0x21: case 0x22: return 2;
    case 0x11: case 0x27: return 4;
    case 0x26: { /* a User Property: two strings */
        uint32_t name = 2u + (uint32_t)(value[0] << 8 | value[1]);
        return name + 2u + (uint32_t)(value[name] << 8 | value[name + 1]);
    }
    default: return 2u + (uint32_t)(value[0] << 8 | value[1]); /* a string */
    }
}

void note_connack(connection *c, const uint8_t *body, uint32_t length) {
    if (length < 2 || body[1]) fail("CONNECT refused: 0x%02x", length < 2 ? 0 : body[1]);
    if (c->version == 5) {
        const uint8_t *at = body + 2;
        uint32_t properties = read_length(&at);
        for (const uint8_t *end = at + properties; at < end;) {
            uint8_t identifier = *at++;
            if (identifier == RECEIVE_MAXIMUM) c->receive_maximum = at[0] << 8 | at[1];
            at += property_size(identifier, at);
        }
    }
    c->progress = CONNECTED;
}

static void handle_handshake(connection *c, uint8_t header, const uint8_t *body, uint32_t length) {
    if ((header & KIND) == CONNACK) note_connack(c, body, length);
    if ((header & KIND) == SUBACK) {
        if (body[length - 1] != c->qos) fail("SUBSCRIBE not granted as asked: 0x%02x", body[length - 1]);
        c->progress = SUBSCRIBED;
    }
}

/* Let the handshake get the packets until it has come so far; then let the connection's own handler get them. */
static void wait_until(connection *c, enum progress progress) {
    packet_handler own = c->handle;
    c->handle = handle_handshake;
    flush(c);
    while (c->progress < progress) {
        if (c->closed) fail("the broker closed the connection in the handshake");
        if (now_ns() > deadline()) fail("the handshake takes too long");
        serve(100 * MILLISECOND);
    }
    c->handle = own;
}

connection *connected(const char *client_id, int version, packet_handler handle, size_t input_capacity) {
    connection *c = begin_connection(handle, input_capacity);
    c->version = version;
    put_connect(c, client_id);
    wait_until(c, CONNECTED);
    return c;
}

void subscribe(connection *c, const char *filter, int qos) {
    put_subscribe(c, filter, qos);
    wait_until(c, SUBSCRIBED);
}

int protocol(void) { return (int)number_option("protocol", 4); }

static void write_digits(char *at, size_t digits, long number) {
    while (digits--) {
        at[digits] = (char)('0' + number % 10);
        number /= 10;
    }
}

void write_numbered_topic(char *at, long number) {
    memcpy(at, "site/000/dev/0000000/temp", NUMBERED_TOPIC);
    write_digits(at + 5, 3, number % 1000);
    write_digits(at + 13, 7, number);
}

void write_numbered_payload(char *at, size_t size, long number) {
    memset(at, 'x', size);
    memcpy(at, "value=", 6);
    write_digits(at + 6, NUMBERED_PAYLOAD - 6, number);
}

long number_of_payload(const uint8_t *payload, size_t length) {
    if (length < NUMBERED_PAYLOAD || memcmp(payload, "value=", 6)) return -1;
    long number = 0;
    for (const uint8_t *at = payload + 6; at < payload + NUMBERED_PAYLOAD; at++) {
        if (*at < '0' || *at > '9') return -1;
        number = 10 * number + (*at - '0');
    }
    return number;
}
