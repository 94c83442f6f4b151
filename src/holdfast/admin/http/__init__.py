"""The API over HTTP: its sites, and the sockets that they listen on."""
