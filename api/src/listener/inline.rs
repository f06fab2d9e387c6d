//! A future that is polled again at once when it has woken itself.
//!
//! hyper hands the body of a request to its reader through a channel within one task, so each request with a body wakes
//! its own task. The runtime would put the task behind all others, and wake another thread that finds no work.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Maximum polls of a future before the others have their turn.
const POLLS_MAX: usize = 4;

pub(super) struct Inline<F> {
    future: Pin<Box<F>>,
    wakes: Arc<Wakes>,
    /// Wakes `wakes`.
    waker: Waker,
}

#[derive(Default)]
struct Wakes {
    is_polled: AtomicBool,
    /// `true` if it was woken since the last poll began.
    is_woken: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, SeqCst);
        // The poll takes back this flag first and reads the other one then.
        if !self.is_polled.load(SeqCst) {
            self.task.wake();
        }
    }
}

impl<F> Inline<F> {
    pub(super) fn over(future: F) -> Self {
        let wakes = Arc::new(Wakes::default());
        let waker = wakes.clone().into();
        Self { future: Box::pin(future), wakes, waker }
    }
}

impl<F: Future> Future for Inline<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { future, wakes, waker } = &mut *self;
        wakes.task.register(context.waker());
        wakes.is_polled.store(true, SeqCst);
        for _ in 0..POLLS_MAX {
            wakes.is_woken.store(false, SeqCst);
            let polled = future.as_mut().poll(&mut Context::from_waker(waker));
            if polled.is_ready() {
                return polled;
            }
            if !wakes.is_woken.load(SeqCst) {
                break;
            }
        }
        wakes.is_polled.store(false, SeqCst);
        if wakes.is_woken.load(SeqCst) {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    /// Pending for a number of times, and wakes itself each time.
    async fn wakes_itself(times: usize) -> usize {
        let mut polls = 0;
        poll_fn(|context| {
            polls += 1;
            if polls > times {
                return Poll::Ready(polls);
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    #[test]
    fn inline_connection_leaves_others_their_turn() {
        let mut context = Context::from_waker(Waker::noop());
        let mut few = Inline::over(wakes_itself(POLLS_MAX - 1));
        assert_eq!(Pin::new(&mut few).poll(&mut context), Poll::Ready(POLLS_MAX));
        let mut many = Inline::over(wakes_itself(POLLS_MAX));
        assert_eq!(Pin::new(&mut many).poll(&mut context), Poll::Pending);
        assert_eq!(Pin::new(&mut many).poll(&mut context), Poll::Ready(POLLS_MAX + 1));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_of_another_thread_is_lost() {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        let sent = tokio::spawn(async move {
            for number in 0..50_000_u32 {
                sender.send(number).await.unwrap();
            }
        });
        let received = tokio::spawn(Inline::over(async move {
            let mut count = 0;
            while receiver.recv().await.is_some() {
                count += 1;
            }
            count
        }));
        let received = tokio::time::timeout(Duration::from_secs(60), received).await;
        assert_eq!(received.unwrap().unwrap(), 50_000);
        sent.await.unwrap();
        assert_eq!(Inline::over(wakes_itself(1000)).await, 1001);
    }
}
