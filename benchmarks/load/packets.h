/* MQTT packets of both protocol versions, and the topics and payloads of the numbered retained messages. */
#ifndef PACKETS_H
#define PACKETS_H

#include "connection.h"

enum {
    CONNECT = 0x10,
    CONNACK = 0x20,
    PUBLISH = 0x30,
    PUBACK = 0x40,
    SUBSCRIBE = 0x80,
    SUBACK = 0x90,
    PINGREQ = 0xc0,
    PINGRESP = 0xd0,
    DISCONNECT = 0xe0,
};
#define KIND 0xf0
#define RETAIN 0x01
#define QOS 0x06
#define DUP 0x08

/* A received PUBLISH. */
typedef struct {
    const uint8_t *topic, *packet_id, *payload;
    uint32_t topic_length, payload_length;
} publication;

publication read_publish(const connection *c, uint8_t header, const uint8_t *body, uint32_t length);

void put_connect(connection *c, const char *client_id);
void put_subscribe(connection *c, const char *filter, int qos);
void put_puback(connection *c, const uint8_t *packet_id);
void put_disconnect(connection *c);

/* Write a PUBLISH, which takes at most topic_length + payload_length + 16 bytes. Returns its size. */
size_t write_publish(uint8_t *at, int version, const void *topic, size_t topic_length, const void *payload,
                     size_t payload_length, int qos, int retain, uint16_t packet_id);
void put_publish(connection *c, const void *topic, size_t topic_length, const void *payload, size_t payload_length,
                 int qos, int retain);
uint16_t next_packet_id(connection *c);

/* Count a PUBACK, and fail if it is a refusal. */
void note_puback(connection *c, const uint8_t *body, uint32_t length);

/* Open a connection and wait for its CONNACK. Then `handle` gets its packets. */
connection *connected(const char *client_id, int version, packet_handler handle, size_t input_capacity);

/* Subscribe and wait for the SUBACK: for filters without retained messages. */
void subscribe(connection *c, const char *filter, int qos);

/* --protocol: the version of all connections that the scenario does not choose. */
int protocol(void);

/* Take the CONNACK. Fail if it is a refusal. */
void note_connack(connection *c, const uint8_t *body, uint32_t length);

/* The retained message with this number: site/NNN/dev/NNNNNNN/temp, value=NNNNNNNNNNNNNN. */
#define NUMBERED_TOPIC 25
#define NUMBERED_PAYLOAD 20
void write_numbered_topic(char *at, long number);
void write_numbered_payload(char *at, size_t size, long number);
long number_of_payload(const uint8_t *payload, size_t length); /* -1 if it has none */

#endif
