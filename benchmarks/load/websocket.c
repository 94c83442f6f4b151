/* WebSocket (RFC 6455) with the subprotocol mqtt: each flush sends one masked binary frame. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "options.h"
#include "transport.h"

/* The key of RFC 6455, section 1.3, and the answer to it: the broker cannot tell that all clients have the same one. */
#define REQUEST                                                                                                        \
    "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"                           \
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
#define ACCEPTED "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
#define SWITCHED "HTTP/1.1 101 "
#define END "\r\n\r\n"

enum { CONTINUATION = 0x0, BINARY = 0x2, CLOSE = 0x8, OPCODE = 0x0f, FINAL = 0x80, MASKED = 0x80, LONGEST_HEAD = 14 };

typedef struct {
    size_t asked;       /* bytes of the request that are sent */
    uint64_t left;      /* bytes of the current frame's payload that have not come yet */
    uint8_t head[10];   /* of the next frame, as far as it has come */
    size_t head_length;
    bool ends; /* a Close has come */
} layer;

static void begin_websocket(connection *c) {
    c->layer = calloc(1, sizeof(layer));
    if (!c->layer) fail("out of memory");
    c->opening = true;
}

static void ask_to_switch(connection *c) {
    layer *own = c->layer;
    while (own->asked < strlen(REQUEST)) {
        ssize_t sent = send_plainly(c, REQUEST + own->asked, strlen(REQUEST) - own->asked);
        if (sent < 0) {
            c->closed = !is_not_ready();
            watch_writes(c, !c->closed);
            return;
        }
        own->asked += (size_t)sent;
    }
    watch_writes(c, false);
    ssize_t taken = recv(c->fd, c->input + c->input_length, c->input_capacity - c->input_length, 0);
    if (taken <= 0) {
        c->closed = taken == 0 || !is_not_ready();
        return;
    }
    c->input_length += (size_t)taken;
    const uint8_t *end = memmem(c->input, c->input_length, END, strlen(END));
    if (!end) {
        if (c->input_length == c->input_capacity) fail("the answer to the WebSocket request is too long");
        return;
    }
    if (memcmp(c->input, SWITCHED, strlen(SWITCHED)) || !memmem(c->input, c->input_length, ACCEPTED, strlen(ACCEPTED)))
        fail("WebSocket refused: %.12s", (const char *)c->input);
    if (end + strlen(END) < c->input + c->input_length) fail("the broker sends a frame before CONNECT");
    c->input_length = 0;
    c->opening = false;
}

/* A new mask for each frame, as browsers have it; here it need not be a secret. */
static uint32_t next_mask(void) {
    static uint32_t mask = 0x9e3779b9;
    mask ^= mask << 13;
    mask ^= mask >> 17;
    mask ^= mask << 5;
    return mask;
}

static void seal_frame(connection *c) {
    size_t size = c->output_end - c->output_sealed;
    if (!size) return;
    reserve_output(c, LONGEST_HEAD);
    size_t head = size < 126 ? 6 : size < 65536 ? 8 : 14;
    uint8_t *at = c->output + c->output_sealed, *payload = at + head;
    memmove(payload, at, size);
    *at++ = FINAL | BINARY;
    *at++ = (uint8_t)(MASKED | (size < 126 ? size : size < 65536 ? 126 : 127));
    for (int shift = size < 126 ? 0 : size < 65536 ? 16 : 64; shift; shift -= 8) *at++ = (uint8_t)(size >> (shift - 8));
    uint32_t mask = next_mask();
    memcpy(at, &mask, sizeof mask);
    for (size_t i = 0; i < size; i++) payload[i] ^= at[i % 4];
    c->output_end = c->output_sealed = (size_t)(payload + size - c->output);
}

/* Read the head of a frame that is complete, or the next byte of it. */
static void take_head(layer *own, uint8_t byte) {
    uint8_t *head = own->head;
    head[own->head_length++] = byte;
    if (own->head_length < 2) return;
    size_t bytes = head[1] == 126 ? 2 : head[1] == 127 ? 8 : 0; /* of the extended length */
    if (own->head_length < 2 + bytes) return;
    int opcode = head[0] & OPCODE;
    own->ends = opcode == CLOSE;
    if (!own->ends && opcode != BINARY && opcode != CONTINUATION) fail("a WebSocket frame 0x%02x", head[0]);
    if (head[1] & MASKED) fail("a WebSocket frame of the broker is masked");
    own->left = bytes ? 0 : head[1];
    for (size_t i = 0; i < bytes; i++) own->left = own->left << 8 | head[2 + i];
    own->head_length = 0;
}

static ssize_t receive_frames(connection *c, void *room_for, size_t room) {
    layer *own = c->layer;
    ssize_t taken = recv(c->fd, room_for, room, 0);
    if (taken <= 0) return taken;
    uint8_t *to = room_for;
    const uint8_t *from = room_for, *end = from + taken;
    while (from < end && !own->ends) {
        if (own->left) {
            size_t size = own->left < (size_t)(end - from) ? (size_t)own->left : (size_t)(end - from);
            memmove(to, from, size);
            to += size;
            from += size;
            own->left -= size;
        } else {
            take_head(own, *from++);
        }
    }
    if (to > (uint8_t *)room_for) return to - (uint8_t *)room_for;
    if (own->ends) return 0;
    errno = EAGAIN;
    return -1;
}

static void end_websocket(connection *c) { free(c->layer); }

const transport websocket = {
    .begin = begin_websocket,
    .open = ask_to_switch,
    .seal = seal_frame,
    .send = send_plainly,
    .receive = receive_frames,
    .end = end_websocket,
};
