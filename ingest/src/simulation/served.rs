//! An HTTP endpoint whose every answer a test decides.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Status and body for the calls of a request.
pub(crate) type Answers = Arc<dyn Fn(&[Value]) -> (u16, String) + Send + Sync>;

pub(crate) struct Served {
    pub(crate) url: String,
    /// The numbers of calls of the requests so far.
    sizes: Arc<Mutex<Vec<usize>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Served {
    pub(crate) async fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let seen = sizes.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serve(stream, &answers, &seen).await;
            }
        });
        Self { url, sizes, task }
    }

    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One request, one answer; the connection ends with it.
async fn serve(stream: TcpStream, answers: &Answers, sizes: &Mutex<Vec<usize>>) {
    let mut stream = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while stream.read_line(&mut line).await.unwrap() > 2 {
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let calls = match serde_json::from_slice(&body).unwrap() {
        Value::Array(calls) => calls,
        call => vec![call],
    };
    sizes.lock().unwrap_or_else(PoisonError::into_inner).push(calls.len());
    let (status, text) = answers(&calls);
    let length = text.len();
    let head = format!("HTTP/1.1 {status} -\r\nconnection: close\r\ncontent-length: {length}\r\n");
    stream.write_all(format!("{head}\r\n{text}").as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
}
