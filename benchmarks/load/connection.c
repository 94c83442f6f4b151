#define _GNU_SOURCE
#include "connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "figures.h"
#include "options.h"
#include "transport.h"

#define MOST_EVENTS 512
#define MOST_READ 262144
#define FIRST_OUTPUT 1024

static int loop = -1;
static uint64_t end_of_time;

void open_loop(void) {
    if (loop >= 0) close(loop); /* a child process has one of its own */
    loop = epoll_create1(0);
    if (loop < 0) fail("epoll: %s", strerror(errno));
    end_of_time = now_ns() + (uint64_t)(seconds_option("timeout", 120) * 1e9);
}

uint64_t deadline(void) { return end_of_time; }

static void *allocated(void *memory) {
    if (!memory) fail("out of memory");
    return memory;
}

connection *new_connection(int fd, packet_handler handle, size_t input_capacity) {
    connection *c = allocated(calloc(1, sizeof *c));
    c->fd = fd;
    c->version = 4;
    c->transport = &plain;
    c->handle = handle;
    c->readable = receive;
    c->receive_maximum = 65535;
    c->input_capacity = input_capacity;
    c->input = allocated(malloc(input_capacity));
    c->output_capacity = FIRST_OUTPUT;
    c->output = allocated(malloc(FIRST_OUTPUT));
    c->began = now_ns();
    return c;
}

connection *begin_connection(packet_handler handle, size_t input_capacity) {
    return begin_connection_by(&plain, number_option("port", 1883), handle, input_capacity);
}

connection *begin_connection_by(const transport *by, long port, packet_handler handle, size_t input_capacity) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0) fail("socket: %s", strerror(errno));
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    connection *c = new_connection(fd, handle, input_capacity);
    c->transport = by;
    if (by->begin) by->begin(c);
    if (connect(fd, (void *)&address, sizeof address) < 0 && errno != EINPROGRESS) c->closed = true;
    watch(fd, c);
    return c;
}

void end_connection(connection *c) {
    if (c->transport->end) c->transport->end(c);
    close(c->fd);
    free(c->input);
    free(c->output);
    free(c);
}

void watch(int fd, void *data) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = data};
    if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event)) fail("epoll: %s", strerror(errno));
}

void watch_writes(connection *c, bool wanted) {
    if (c->wants_write == wanted) return;
    c->wants_write = wanted;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(loop, EPOLL_CTL_MOD, c->fd, &event);
}

uint8_t *reserve_output(connection *c, size_t size) {
    if (c->output_start == c->output_end) c->output_start = c->output_end = c->output_sealed = 0;
    if (c->output_end + size > c->output_capacity && c->output_start) {
        memmove(c->output, c->output + c->output_start, unsent(c));
        c->output_end -= c->output_start;
        c->output_sealed -= c->output_sealed < c->output_start ? c->output_sealed : c->output_start;
        c->output_start = 0;
    }
    if (c->output_end + size > c->output_capacity) {
        while (c->output_end + size > c->output_capacity) c->output_capacity *= 2;
        c->output = allocated(realloc(c->output, c->output_capacity));
    }
    return c->output + c->output_end;
}

void put(connection *c, const void *bytes, size_t size) {
    memcpy(reserve_output(c, size), bytes, size);
    c->output_end += size;
}

size_t unsent(const connection *c) { return c->output_end - c->output_start; }

bool is_not_ready(void) { return errno == EAGAIN || errno == ENOTCONN || errno == EINTR; }

void flush(connection *c) {
    if (c->opening && !c->closed) c->transport->open(c);
    if (c->opening || c->closed) return;
    if (c->transport->seal) c->transport->seal(c);
    while (!c->closed && unsent(c)) {
        ssize_t sent = c->transport->send(c, c->output + c->output_start, unsent(c));
        if (sent >= 0) {
            c->output_start += (size_t)sent;
        } else if (errno == EAGAIN || errno == ENOTCONN) {
            break;
        } else if (errno != EINTR) {
            c->closed = true;
            return;
        }
    }
    watch_writes(c, unsent(c) > 0);
}

/* Handle the complete packets of the input, and keep the rest. */
static void handle_packets(connection *c) {
    size_t at = 0;
    while (!c->closed) {
        const uint8_t *packet = c->input + at;
        size_t available = c->input_length - at;
        uint32_t length = 0;
        size_t head = 1;
        bool complete = false;
        for (unsigned shift = 0; head < available && head < 5 && !complete; head++, shift += 7) {
            length |= (uint32_t)(packet[head] & 0x7f) << shift;
            complete = !(packet[head] & 0x80);
        }
        if (!complete && head == 5) fail("a Remaining Length of more than four bytes");
        if (!complete || available < head + length) {
            if (complete && head + length > c->input_capacity) {
                c->input_capacity = head + length + 65536;
                c->input = allocated(realloc(c->input, c->input_capacity));
            }
            break;
        }
        c->handle(c, packet[0], packet + head, length);
        at += head + length;
    }
    if (at) {
        c->input_length -= at;
        memmove(c->input, c->input + at, c->input_length);
    }
}

static void read_once(connection *c) {
    size_t room = c->input_capacity - c->input_length;
    ssize_t taken = c->transport->receive(c, c->input + c->input_length, room < MOST_READ ? room : MOST_READ);
    if (taken > 0) {
        c->input_length += (size_t)taken;
        handle_packets(c);
    } else if (taken == 0 || (errno != EAGAIN && errno != EINTR)) {
        c->closed = true;
    }
}

void receive(connection *c) {
    if (c->opening) flush(c);
    if (c->opening || c->closed) return;
    read_once(c);
    while (c->transport->pending && !c->closed && c->transport->pending(c)) read_once(c);
}

ssize_t send_plainly(connection *c, const void *bytes, size_t size) { return send(c->fd, bytes, size, MSG_NOSIGNAL); }

static ssize_t receive_plainly(connection *c, void *at, size_t room) { return recv(c->fd, at, room, 0); }

const transport plain = {.send = send_plainly, .receive = receive_plainly};

const transport *device_transport(void) {
    bool by_tls = number_option("tls", 0), by_websocket = number_option("websocket", 0);
    if (by_tls && by_websocket) fail("devices use --tls or --websocket, not both");
    return by_tls ? &tls : by_websocket ? &websocket : &plain;
}

void serve(uint64_t nanoseconds) {
    int milliseconds = (int)(nanoseconds / MILLISECOND);
    if (nanoseconds % MILLISECOND) { /* epoll_wait knows whole milliseconds only */
        struct pollfd ready = {.fd = loop, .events = POLLIN};
        struct timespec wait = {(time_t)(nanoseconds / SECOND), (long)(nanoseconds % SECOND)};
        ppoll(&ready, 1, &wait, NULL);
        milliseconds = 0;
    }
    struct epoll_event events[MOST_EVENTS];
    int count = epoll_wait(loop, events, MOST_EVENTS, milliseconds);
    for (int i = 0; i < count; i++) {
        connection *c = events[i].data.ptr;
        if (!c->closed && events[i].events & EPOLLOUT) flush(c);
        if (!c->closed && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) c->readable(c);
        if (!c->closed) continue;
        epoll_ctl(loop, EPOLL_CTL_DEL, c->fd, NULL);
        if (c->lost) c->lost(c);
    }
}
