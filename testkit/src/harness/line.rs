//! A TCP proxy that a test can cut off.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A local port that forwards to a server until it is cut: then connections are refused.
#[derive(Debug)]
pub struct Line {
    url: String,
    used: Arc<AtomicUsize>,
    /// Aborted on drop.
    server: JoinSet<()>,
}

impl Line {
    /// Forwards to a local URL.
    pub async fn to(url: &str) -> Self {
        let (host, path) = url.strip_prefix("http://").expect("http").split_once('/').map_or_else(
            || (url.trim_start_matches("http://"), String::new()),
            |(host, path)| (host, format!("/{path}")),
        );
        let far: SocketAddr = host.parse().expect("an address");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("listen");
        let near = listener.local_addr().expect("an address");
        let used = Arc::new(AtomicUsize::new(0));
        let count = used.clone();
        let mut server = JoinSet::new();
        server.spawn(async move {
            // Dropped with this task, which ends all connections of the line.
            let mut open = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                open.spawn(async move {
                    let mut server = TcpStream::connect(far).await?;
                    tokio::io::copy_bidirectional(&mut stream, &mut server).await
                });
                while open.try_join_next().is_some() {}
            }
        });
        Self { url: format!("http://{near}{path}"), used, server }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Number of connections so far.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }

    /// Closes it, and waits until all connections are closed.
    pub async fn cut(&mut self) {
        self.server.shutdown().await;
    }
}
