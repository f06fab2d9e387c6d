//! A client that sends any bytes, valid HTTP or not.

use std::time::Duration;

use testkit::DEADLINE;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::world::World;

pub(crate) struct Raw(pub(crate) TcpStream);

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct RawAnswer {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Raw {
    pub(crate) async fn connect(world: &World) -> Self {
        Self(TcpStream::connect(world.address()).await.unwrap())
    }

    /// Opens a connection and sends these bytes.
    pub(crate) async fn sent(world: &World, bytes: impl AsRef<[u8]>) -> Self {
        let mut raw = Self::connect(world).await;
        raw.send(bytes).await;
        raw
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The next answer; none if the connection ends first.
    pub(crate) async fn answer(&mut self) -> Option<RawAnswer> {
        timeout(DEADLINE, self.read_answer()).await.unwrap()
    }

    async fn read_answer(&mut self) -> Option<RawAnswer> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await.ok()?);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let status = head.split(' ').nth(1)?.parse().unwrap();
        let length = head.split("content-length: ").nth(1)?.lines().next()?;
        let mut body = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut body).await.ok()?;
        Some(RawAnswer { status, head, body: String::from_utf8(body).unwrap() })
    }

    /// Waits for `100 Continue`: the server asks for the body of a request with `Expect`.
    pub(crate) async fn body_is_awaited(&mut self) {
        let mut line = [0; 25];
        self.0.read_exact(&mut line).await.unwrap();
        assert_eq!(&line, b"HTTP/1.1 100 Continue\r\n\r\n");
    }

    /// The answer to a request with this head and without its body, once the time limit of a whole request has passed.
    pub(crate) async fn answer_without_body(world: &World, head: &str) -> RawAnswer {
        let head = format!("{head}expect: 100-continue\r\ncontent-length: 9\r\n\r\n");
        let mut raw = Self::sent(world, head).await;
        raw.body_is_awaited().await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(31)).await;
        tokio::time::resume();
        raw.answer().await.unwrap()
    }

    /// All that comes until the server ends the connection.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset is an end, too.
        drop(timeout(DEADLINE, self.0.read_to_end(&mut bytes)).await.unwrap());
        bytes
    }

    /// `true` if nothing happens for a moment.
    pub(crate) async fn is_kept(&mut self, moment: Duration) -> bool {
        timeout(moment, self.0.read_u8()).await.is_err()
    }
}
