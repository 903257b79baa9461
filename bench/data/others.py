"""Configures nginx and HAProxy for speed: kept-alive connections to backends, large buffers, no logs. They verify TLS to
backends by CA and name."""

from __future__ import annotations

from bench.data.places import BACKENDS, Places, host

NGINX = """\
load_module modules/ngx_stream_module.so;
daemon off;
master_process off;
worker_processes 1;
pid {home}/nginx.pid;
error_log {home}/nginx.log error;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  server_tokens off;
  keepalive_requests 1000000000;
  client_body_temp_path {home}; proxy_temp_path {home};
  fastcgi_temp_path {home}; uwsgi_temp_path {home}; scgi_temp_path {home};
  proxy_buffer_size 64k;
  proxy_buffers 16 64k;
  proxy_busy_buffers_size 128k;
  proxy_max_temp_file_size 0;
  proxy_http_version 1.1;
  proxy_ssl_verify on;
  proxy_ssl_trusted_certificate {ca};
  proxy_ssl_server_name on;
  proxy_ssl_protocols TLSv1.2 TLSv1.3;
  grpc_ssl_verify on;
  grpc_ssl_trusted_certificate {ca};
  grpc_ssl_server_name on;
  grpc_ssl_protocols TLSv1.2 TLSv1.3;
  map $http_upgrade $upgrading {{ default upgrade; '' ''; }}
{servers}
}}
stream {{
  server {{
    listen 127.0.0.1:{stream} ssl;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    ssl_protocols TLSv1.2 TLSv1.3;
    proxy_pass 127.0.0.1:{echo};
    proxy_ssl on;
    proxy_ssl_verify on;
    proxy_ssl_trusted_certificate {ca};
    proxy_ssl_name {echo_name};
    proxy_ssl_server_name on;
    proxy_ssl_protocols TLSv1.2 TLSv1.3;
  }}
}}
"""

NGINX_SERVER = """\
  upstream {label} {{ server 127.0.0.1:{port}; keepalive 64; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{http};
    listen 127.0.0.1:{http2} http2;
    http2_max_requests 1000000000;
    server_name {name};
    location / {{ {to} }}
  }}
"""
NGINX_HTTP = """\
proxy_pass https://{label}; proxy_ssl_name {name}; proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $upgrading;"""
NGINX_GRPC = "grpc_pass grpcs://{label}; grpc_ssl_name {name};"

HAPROXY = """\
global
  nbthread 1
  maxconn 8192
  ssl-server-verify required
defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  option forwardfor
  http-reuse always
frontend http
  bind 127.0.0.1:{http}
  bind 127.0.0.1:{http2} proto h2
  use_backend %[req.hdr(host),lower]
frontend stream
  mode tcp
  bind 127.0.0.1:{stream} ssl crt {pair}
  default_backend stream
backend stream
  mode tcp
  server one 127.0.0.1:{echo} ssl verify required ca-file {ca} sni str({echo_name}) verifyhost {echo_name}
{backends}
"""
HAPROXY_BACKEND = """\
backend {name}
  server one 127.0.0.1:{port} ssl verify required ca-file {ca} sni str({name}) verifyhost {name} alpn {alpn} pool-max-conn -1
"""
_HTTP = [label for label in BACKENDS if label != "echo"]


def nginx(places: Places, ports: dict[str, int]) -> str:
    servers = []
    for label in _HTTP:
        to = (NGINX_GRPC if label == "grpc" else NGINX_HTTP).format(label=label, name=host(label))
        servers.append(NGINX_SERVER.format(label=label, port=places.port(label), name=host(label), to=to, **ports))
    return NGINX.format(servers="".join(servers), **_common(places), **ports)


def haproxy(places: Places, ports: dict[str, int]) -> str:
    backends = [
        HAPROXY_BACKEND.format(
            name=host(label), port=places.port(label), ca=places.ca, alpn="h2" if BACKENDS[label] == "h2" else "http/1.1"
        )
        for label in _HTTP
    ]
    pair = places.home / "server.pem"
    pair.write_bytes(places.certificate.read_bytes() + places.key.read_bytes())
    return HAPROXY.format(backends="".join(backends), pair=pair, **_common(places), **ports)


def _common(places: Places) -> dict[str, object]:
    files = {"home": places.home, "ca": places.ca, "certificate": places.certificate, "key": places.key}
    return {**files, "echo": places.port("echo"), "echo_name": host("echo")}
