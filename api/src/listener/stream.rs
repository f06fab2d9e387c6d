//! A client's connection with its time-outs.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use runtime::config::Connections;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use super::progress::Progress;
use crate::metrics;

/// Time and byte limits for discarding input after the last answer. Closing at once would reset the connection, and the
/// client might lose that answer.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Stream that fails if the client exceeds a timeout.
pub(super) struct Timed {
    stream: TcpStream,
    progress: Arc<Progress>,
    bounds: Connections,
    /// Fires at the deadline of the awaited input or earlier, and is then set again: that costs less than setting it
    /// for each request.
    alarm: Pin<Box<Sleep>>,
    /// Write timeout; set while a write is blocked.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Bytes discarded since the shutdown began; none before.
    lingered: Option<usize>,
}

impl Timed {
    pub(super) fn new(stream: TcpStream, progress: Arc<Progress>, bounds: Connections) -> Self {
        let alarm = Box::pin(sleep(bounds.header_timeout.min(bounds.idle_timeout)));
        Self { stream, progress, bounds, alarm, stalled: None, lingered: None }
    }

    /// Polls the timeout for input. The alarm also runs during a request, because the stream may not be polled again
    /// after the answer. It is at most one idle timeout away, so it fires in time after the answer.
    fn await_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let idle = self.bounds.idle_timeout;
        loop {
            let awaited = self.progress.awaited();
            if let Some((_, until)) = awaited
                && until < self.alarm.deadline()
            {
                self.alarm.as_mut().reset(until);
            }
            ready!(self.alarm.as_mut().poll(context));
            let now = Instant::now();
            let next = match awaited {
                Some((awaited, until)) if until <= now => {
                    metrics::connection_timed_out(awaited);
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                Some((_, until)) => until.min(now + idle),
                None => now + idle,
            };
            self.alarm.as_mut().reset(next);
        }
    }

    /// Discards available input; the end of the stream, an error or the byte limit ends the wait.
    fn linger(&mut self, context: &mut Context<'_>) {
        let mut bytes = [0; 8192];
        while self.lingered < Some(LINGER_BYTES_MAX) {
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = Pin::new(&mut self.stream).poll_read(context, &mut buffer);
            self.lingered = match (read, buffer.filled().len()) {
                (Poll::Pending, _) => return,
                (Poll::Ready(Err(_)), _) | (_, 0) => Some(LINGER_BYTES_MAX),
                (Poll::Ready(Ok(())), count) => self.lingered.map(|before| before + count),
            };
        }
    }
}

impl AsyncRead for Timed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_pending() {
            return self.await_more(context);
        }
        self.progress.came();
        read
    }
}

impl AsyncWrite for Timed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        // A write that blocks for the whole limit means that the client reads nothing.
        let limit = self.bounds.body_timeout;
        ready!(self.stalled.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(context));
        metrics::connection_timed_out("answer");
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingered.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
            self.alarm.as_mut().reset(Instant::now() + LINGER);
            self.lingered = Some(0);
        }
        self.linger(context);
        let is_over = self.lingered >= Some(LINGER_BYTES_MAX);
        if is_over || self.alarm.as_mut().poll(context).is_ready() {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }
}
