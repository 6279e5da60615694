//! Configurations of the peers: one worker, no log, connections that live as long as the client wants them.

use super::CONNECTIONS;
use super::system::System;
use std::path::Path;

/// Processes of a FastCGI application: more than there are connections, as each process serves one.
pub(super) const APPLICATIONS: u32 = 24;

/// Returns the text of a peer's configuration file; none for ours.
pub(super) fn text(system: System, dir: &Path, port: u16, root: bool) -> Option<String> {
    let dir = dir.display();
    match system {
        System::NginxFcgi | System::NginxStatic => {
            let user = if root { "user root;" } else { "" };
            Some(format!(
                r"{user}
daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000; sendfile on; tcp_nopush on; open_file_cache max=100;
  client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2; fastcgi_temp_path {dir}/t3;
  uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5;
  upstream application {{ server unix:{dir}/socket; keepalive {CONNECTIONS}; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096; root {dir};
    location /bytes/ {{
      fastcgi_pass application; fastcgi_keep_conn on;
      fastcgi_buffer_size 16k; fastcgi_buffers 64 16k; fastcgi_busy_buffers_size 512k; fastcgi_max_temp_file_size 0;
      fastcgi_param REQUEST_METHOD $request_method; fastcgi_param REQUEST_URI $request_uri;
      fastcgi_param CONTENT_LENGTH $content_length;
    }}
  }}
}}
"
            ))
        }
        System::ApacheFcgid | System::ApacheProxy => {
            let user = if root {
                "User www-data\nGroup www-data"
            } else {
                ""
            };
            let modules = "/usr/lib/apache2/modules";
            let application = match system {
                System::ApacheFcgid => format!(
                    r"LoadModule alias_module {modules}/mod_alias.so
LoadModule fcgid_module {modules}/mod_fcgid.so
FcgidIPCDir {dir}/sockets
FcgidProcessTableFile {dir}/table
FcgidMaxProcesses {CONNECTIONS}
FcgidMinProcessesPerClass {CONNECTIONS}
FcgidMaxRequestsPerProcess 0
FcgidOutputBufferSize 1048576
ScriptAlias /bytes {dir}/answer
<Directory {dir}>
  Require all granted
  Options +ExecCGI
  SetHandler fcgid-script
</Directory>"
                ),
                // libfcgi ends kept connections at times that Apache takes for errors: each request has its own.
                _ => format!(
                    r#"LoadModule proxy_module {modules}/mod_proxy.so
LoadModule proxy_fcgi_module {modules}/mod_proxy_fcgi.so
ProxyPass /bytes/ "unix:{dir}/socket|fcgi://localhost/""#
                ),
            };
            Some(format!(
                r"{user}
ServerRoot {dir}
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {dir}/pid
ErrorLog {dir}/log
DefaultRuntimeDir {dir}
Mutex pthread
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
StartServers 1
ServerLimit 1
ThreadLimit 64
ThreadsPerChild 64
MaxRequestWorkers 64
MinSpareThreads 1
MaxSpareThreads 64
KeepAlive On
MaxKeepAliveRequests 0
{application}
"
            ))
        }
        System::Tranship | System::SingleProcess | System::TranshipStatic => None,
    }
}
