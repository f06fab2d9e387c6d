//! An HTTP server that can break the protocol, which axum does not allow.

use std::future::Future;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Time between two bytes of a slow reply.
const DRIP: Duration = Duration::from_millis(40);
/// Maximum size of a request, in bytes.
const REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Reply to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// A status, further headers and a body.
    Answer(u16, &'static str, String),
    /// The connection is closed in the middle of this body.
    Cut(String),
    /// The first bytes of this body come one by one, the rest never.
    Drip(String),
    /// No reply.
    Silence,
}

impl Reply {
    pub(super) fn ok(body: String) -> Self {
        Self::Answer(200, "", body)
    }
}

/// Serves until its task is aborted. If `resets` returns `true` when a request arrives, the
/// connection is reset.
pub(super) async fn serve<F: Future<Output = Reply> + Send>(
    listener: TcpListener,
    resets: impl Fn() -> bool + Clone + Send + 'static,
    answer: impl Fn(String) -> F + Clone + Send + 'static,
) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (resets, answer) = (resets.clone(), answer.clone());
        connections.spawn(async move { drop(connection(stream, resets, answer).await) });
        while connections.try_join_next().is_some() {}
    }
}

async fn connection<F: Future<Output = Reply>>(
    mut stream: TcpStream,
    resets: impl Fn() -> bool,
    answer: impl Fn(String) -> F,
) -> std::io::Result<()> {
    let mut first = [0];
    while stream.peek(&mut first).await? > 0 {
        if resets() {
            // The kernel resets a connection closed with unread bytes.
            return Ok(());
        }
        let body = request(&mut stream).await?;
        match answer(body).await {
            Reply::Answer(status, headers, body) => {
                let head = format!("HTTP/1.1 {status} Any\r\n{headers}");
                let length = body.len();
                let all = format!("{head}content-length: {length}\r\n\r\n{body}");
                stream.write_all(all.as_bytes()).await?;
            }
            Reply::Cut(body) => {
                stream.write_all(part(&body, body.len() / 2).as_bytes()).await?;
                return stream.shutdown().await;
            }
            Reply::Drip(body) => {
                stream.write_all(part(&body, 0).as_bytes()).await?;
                let mut ticks = tokio::time::interval(DRIP);
                for byte in body.bytes().take(body.len() / 2) {
                    ticks.tick().await;
                    stream.write_all(&[byte]).await?;
                }
                std::future::pending::<()>().await;
            }
            Reply::Silence => std::future::pending::<()>().await,
        }
    }
    Ok(())
}

/// An answer that announces a body and has only its beginning.
fn part(body: &str, bytes: usize) -> String {
    let start = String::from_utf8_lossy(&body.as_bytes()[..bytes]).into_owned();
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{start}", body.len())
}

/// The body of one request.
async fn request(stream: &mut TcpStream) -> std::io::Result<String> {
    let broken = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    let mut bytes = Vec::new();
    loop {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize =
                length.and_then(|text| text.trim().parse().ok()).ok_or_else(broken)?;
            if bytes.len() >= end + 4 + length {
                let body = bytes.split_off(end + 4);
                return String::from_utf8(body).map_err(|_| broken());
            }
        }
        if bytes.len() > REQUEST_BYTES_MAX || stream.read_buf(&mut bytes).await? == 0 {
            return Err(broken());
        }
    }
}
