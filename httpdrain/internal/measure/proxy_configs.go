package main

// The configuration files of the proxies, with placeholders that the method proxy.start replaces.

const nginxConfig = `
daemon off;
master_process off;
pid DIR/pid;
events {}
http {
	access_log off;
	client_body_temp_path DIR/a;
	proxy_temp_path DIR/b;
	fastcgi_temp_path DIR/c;
	uwsgi_temp_path DIR/d;
	scgi_temp_path DIR/e;
	upstream servers {
		server SERVER1 max_fails=0;
		server SERVER2 max_fails=0;
		keepalive 100;
		keepalive_requests 1000000;
	}
	server {
		listen unix:DIR/socket;
		keepalive_requests 1000000;
		location / {
			proxy_pass http://servers;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
		}
	}
}
`

const haproxyConfig = `
defaults
	mode http
	timeout connect 5s
	timeout client 1m
	timeout server 1m
	retries 10
	option redispatch 1
frontend public
	bind unix@DIR/socket
	default_backend servers
backend servers
	balance roundrobin
	server one SERVER1
	server two SERVER2
`

// If Apache could not connect to a server, it sends no request to that server for the time retry.
// This time must not be one second: after a second without a request the server closes its quiet
// connections, and Apache would send the next POST on one of them just then.
const apacheConfig = `
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so
LoadModule proxy_http_module /usr/lib/apache2/modules/mod_proxy_http.so
LoadModule proxy_balancer_module /usr/lib/apache2/modules/mod_proxy_balancer.so
LoadModule lbmethod_byrequests_module /usr/lib/apache2/modules/mod_lbmethod_byrequests.so
LoadModule slotmem_shm_module /usr/lib/apache2/modules/mod_slotmem_shm.so
User www-data
Group www-data
ServerName localhost
Listen FRONT
DefaultRuntimeDir DIR
PidFile DIR/pid
ErrorLog DIR/log
StartServers 1
ServerLimit 1
ThreadLimit 100
ThreadsPerChild 100
MaxRequestWorkers 100
MaxKeepAliveRequests 0
<Proxy balancer://servers>
	BalancerMember http://SERVER1 retry=2
	BalancerMember http://SERVER2 retry=2
</Proxy>
ProxyPass / balancer://servers/
`

const caddyConfig = `
{
	admin off
	auto_https off
	log {
		output discard
	}
}
http:// {
	bind unix/DIR/socket
	reverse_proxy SERVER1 SERVER2 {
		lb_policy round_robin
		lb_try_duration 10s
		lb_try_interval 10ms
		transport http {
			versions 1.1
		}
	}
}
`

// If one of the two servers does not listen, Traefik tries the other one only with the middleware
// retry. That repeats a request unless Traefik has connected and sent a part of it. Each attempt
// may choose the same server again, so there are more attempts than Traefik can need.
const traefikConfig = `
http:
  routers:
    all:
      entryPoints: [web]
      rule: PathPrefix(` + "`/`" + `)
      middlewares: [retry]
      service: servers
  middlewares:
    retry:
      retry:
        attempts: 100
        initialInterval: 1ms
  services:
    servers:
      loadBalancer:
        servers:
          - url: SCHEME://SERVER1
          - url: SCHEME://SERVER2
`
