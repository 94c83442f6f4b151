/* TLS 1.3 by the OpenSSL of the system, which is loaded when the first connection needs it: the generator compiles
 * without its headers, and runs without it.
 *
 * The tickets of TLS 1.3 come after the handshake. So OpenSSL calls keep_session while it reads, and the last session
 * counts.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "options.h"
#include "transport.h"

#define HOST "localhost" /* the name in the broker's certificate */

/* Constants of openssl/ssl.h, version 3 */
enum {
    SSL_ERROR_SSL = 1,
    SSL_ERROR_WANT_READ = 2,
    SSL_ERROR_WANT_WRITE = 3,
    SSL_VERIFY_PEER = 1,
    SSL_CTRL_MODE = 33,
    SSL_MODE_ENABLE_PARTIAL_WRITE = 0x01,
    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER = 0x02,
    SSL_MODE_RELEASE_BUFFERS = 0x10,
    SSL_CTRL_SET_SESS_CACHE_MODE = 44,
    SSL_SESS_CACHE_CLIENT = 0x0001,
    SSL_SESS_CACHE_NO_INTERNAL = 0x0300,
    SSL_CTRL_SET_TLSEXT_HOSTNAME = 55,
    SSL_CTRL_SET_MIN_PROTO_VERSION = 123,
    TLS1_3_VERSION = 0x0304,
    SSL_SENT_AND_RECEIVED_SHUTDOWN = 3,
    SSL_R_UNEXPECTED_EOF_WHILE_READING = 294,
    ERR_REASON_MASK = 0x7fffff,
};

typedef void SSL_CTX, SSL, SSL_SESSION;

static struct {
    const void *(*TLS_client_method)(void);
    SSL_CTX *(*SSL_CTX_new)(const void *);
    long (*SSL_CTX_ctrl)(SSL_CTX *, int, long, void *);
    int (*SSL_CTX_load_verify_locations)(SSL_CTX *, const char *, const char *);
    void (*SSL_CTX_set_verify)(SSL_CTX *, int, void *);
    void (*SSL_CTX_sess_set_new_cb)(SSL_CTX *, int (*)(SSL *, SSL_SESSION *));
    SSL *(*SSL_new)(SSL_CTX *);
    void (*SSL_free)(SSL *);
    int (*SSL_set_fd)(SSL *, int);
    long (*SSL_ctrl)(SSL *, int, long, void *);
    int (*SSL_set1_host)(SSL *, const char *);
    int (*SSL_set_ex_data)(SSL *, int, void *);
    void *(*SSL_get_ex_data)(const SSL *, int);
    void (*SSL_set_connect_state)(SSL *);
    int (*SSL_do_handshake)(SSL *);
    int (*SSL_read)(SSL *, void *, int);
    int (*SSL_write)(SSL *, const void *, int);
    int (*SSL_pending)(const SSL *);
    int (*SSL_get_error)(const SSL *, int);
    void (*SSL_set_shutdown)(SSL *, int);
    int (*SSL_set_session)(SSL *, SSL_SESSION *);
    int (*SSL_session_reused)(const SSL *);
    void (*SSL_SESSION_free)(SSL_SESSION *);
    void (*ERR_clear_error)(void);
    unsigned long (*ERR_peek_error)(void);
    void (*ERR_error_string_n)(unsigned long, char *, size_t);
} lib;

typedef struct {
    SSL *ssl;
    SSL_SESSION *session;
} layer;

static SSL_CTX *context;

static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) fail("libssl.so.3 has no %s", name);
    return found;
}

static void load_library(void) {
    void *from = dlopen("libssl.so.3", RTLD_NOW);
    if (!from) fail("TLS needs OpenSSL 3 at run time, such as libssl3 of Debian: %s", dlerror());
#define LOAD(name) *(void **)&lib.name = symbol(from, #name)
    LOAD(TLS_client_method);
    LOAD(SSL_CTX_new);
    LOAD(SSL_CTX_ctrl);
    LOAD(SSL_CTX_load_verify_locations);
    LOAD(SSL_CTX_set_verify);
    LOAD(SSL_CTX_sess_set_new_cb);
    LOAD(SSL_new);
    LOAD(SSL_free);
    LOAD(SSL_set_fd);
    LOAD(SSL_ctrl);
    LOAD(SSL_set1_host);
    LOAD(SSL_set_ex_data);
    LOAD(SSL_get_ex_data);
    LOAD(SSL_set_connect_state);
    LOAD(SSL_do_handshake);
    LOAD(SSL_read);
    LOAD(SSL_write);
    LOAD(SSL_pending);
    LOAD(SSL_get_error);
    LOAD(SSL_set_shutdown);
    LOAD(SSL_set_session);
    LOAD(SSL_session_reused);
    LOAD(SSL_SESSION_free);
    LOAD(ERR_clear_error);
    LOAD(ERR_peek_error);
    LOAD(ERR_error_string_n);
#undef LOAD
}

/* OpenSSL hands over the session: the result 1 means that it is kept here. */
static int keep_session(SSL *ssl, SSL_SESSION *session) {
    layer *own = ((connection *)lib.SSL_get_ex_data(ssl, 0))->layer;
    if (own->session) lib.SSL_SESSION_free(own->session);
    own->session = session;
    return 1;
}

static void make_context(void) {
    load_library();
    context = lib.SSL_CTX_new(lib.TLS_client_method());
    if (!context) fail("OpenSSL makes no context");
    lib.SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL);
    long modes = SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS;
    lib.SSL_CTX_ctrl(context, SSL_CTRL_MODE, modes, NULL);
    lib.SSL_CTX_ctrl(context, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL, NULL);
    lib.SSL_CTX_sess_set_new_cb(context, keep_session);
    const char *authority = text_option("ca", NULL);
    if (!authority) return;
    if (lib.SSL_CTX_load_verify_locations(context, authority, NULL) != 1) fail("no certificate in %s", authority);
    lib.SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
}

static void begin_tls(connection *c) {
    if (!context) make_context();
    layer *own = c->layer = calloc(1, sizeof *own);
    own->ssl = own ? lib.SSL_new(context) : NULL;
    if (!own->ssl || lib.SSL_set_fd(own->ssl, c->fd) != 1) fail("OpenSSL makes no connection");
    lib.SSL_set_ex_data(own->ssl, 0, c);
    lib.SSL_ctrl(own->ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, 0, HOST);
    lib.SSL_set1_host(own->ssl, HOST);
    lib.SSL_set_connect_state(own->ssl);
    c->opening = true;
}

/* The broker has ended the connection without ending TLS first, which a broker that stops may do. */
static bool is_cut_off(void) {
    return (lib.ERR_peek_error() & ERR_REASON_MASK) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
}

static void shake_hands(connection *c) {
    layer *own = c->layer;
    lib.ERR_clear_error();
    int result = lib.SSL_do_handshake(own->ssl);
    if (result == 1) {
        c->opening = false;
        return;
    }
    switch (lib.SSL_get_error(own->ssl, result)) {
    case SSL_ERROR_WANT_READ: watch_writes(c, false); break;
    case SSL_ERROR_WANT_WRITE: watch_writes(c, true); break;
    case SSL_ERROR_SSL:
        if (!is_cut_off()) {
            char reason[256];
            lib.ERR_error_string_n(lib.ERR_peek_error(), reason, sizeof reason);
            fail("TLS handshake: %s", reason);
        } /* fall through */
    default: c->closed = true;
    }
}

/* The result of SSL_read or SSL_write as that of recv or send. */
static ssize_t as_of_socket(connection *c, int result) {
    if (result > 0) return result;
    int error = lib.SSL_get_error(((layer *)c->layer)->ssl, result);
    errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
    return -1;
}

static int at_most(size_t size) { return size < INT_MAX ? (int)size : INT_MAX; }

static ssize_t send_encrypted(connection *c, const void *bytes, size_t size) {
    lib.ERR_clear_error();
    return as_of_socket(c, lib.SSL_write(((layer *)c->layer)->ssl, bytes, at_most(size)));
}

static ssize_t receive_encrypted(connection *c, void *at, size_t room) {
    lib.ERR_clear_error();
    return as_of_socket(c, lib.SSL_read(((layer *)c->layer)->ssl, at, at_most(room)));
}

static bool has_pending(connection *c) { return lib.SSL_pending(((layer *)c->layer)->ssl) > 0; }

static void end_tls(connection *c) {
    layer *own = c->layer;
    lib.SSL_set_shutdown(own->ssl, SSL_SENT_AND_RECEIVED_SHUTDOWN); /* or OpenSSL would spoil the session */
    lib.SSL_free(own->ssl);
    if (own->session) lib.SSL_SESSION_free(own->session);
    free(own);
}

const transport tls = {
    .begin = begin_tls,
    .open = shake_hands,
    .send = send_encrypted,
    .receive = receive_encrypted,
    .pending = has_pending,
    .end = end_tls,
};

void *take_session(connection *c) {
    if (c->transport != &tls) return NULL;
    layer *own = c->layer;
    void *session = own->session;
    own->session = NULL;
    return session;
}

void offer_session(connection *c, void *session) {
    if (!session) return;
    layer *own = c->layer;
    if (lib.SSL_set_session(own->ssl, session) != 1) fail("OpenSSL does not take a session");
    own->session = session; /* for the next attempt, if the broker ends this one before it gives a new session */
}

bool is_resumed(const connection *c) {
    return c->transport == &tls && lib.SSL_session_reused(((layer *)c->layer)->ssl);
}
