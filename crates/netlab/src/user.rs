//! Test processes: clients and servers that run as a uid and gid in a network namespace.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use nix::sys::socket::SockType;

use crate::namespace::Namespace;
use crate::response::{Outcome, Response};
use crate::socket::{self, Binding};

/// The line that makes a server reset the connection.
pub const RESET_REQUEST: &str = "reset";
/// The line that makes a server close the connection.
pub const CLOSE_REQUEST: &str = "close";
/// The timeout of a call: long enough for a machine that is busy with other work.
const CALL_LIMIT: Duration = Duration::from_secs(20);

/// A user in a network namespace: its calls and servers run on threads with its uid and gid.
#[derive(Clone, Debug)]
pub struct User {
    namespace: Namespace,
    uid: u32,
    gid: u32,
}

impl User {
    /// A user with this uid and gid, and no further group.
    #[must_use]
    pub fn new(namespace: &Namespace, uid: u32, gid: u32) -> Self {
        Self { namespace: namespace.clone(), uid, gid }
    }

    /// The network namespace of the user.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Runs `work` as this user.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(|| {
            socket::become_user(self.uid, self.gid);
            work()
        })
    }

    /// Makes the calling thread this user for good.
    pub fn switch_thread(&self) {
        self.namespace.enter();
        socket::become_user(self.uid, self.gid);
    }

    /// Calls over TCP and reads the server's account.
    pub fn call(&self, to: SocketAddr) -> Outcome {
        self.call_bound(to, Binding::default())
    }

    /// Calls over TCP from a source address (and port, unless 0).
    pub fn call_from(&self, source: SocketAddr, to: SocketAddr) -> Outcome {
        self.call_bound(to, Binding { source: Some(source), spoofed_mark: None })
    }

    /// Calls over TCP from any socket.
    pub fn call_bound(&self, to: SocketAddr, binding: Binding) -> Outcome {
        self.run(|| call_here(to, binding))
    }

    /// Opens a TCP connection that the server then resets.
    pub fn call_reset_by_server(&self, source: SocketAddr, to: SocketAddr) -> Outcome {
        self.run(|| call_here_reset_by_server(source, to))
    }

    /// Opens a TCP connection that stays open.
    pub fn connect(&self, to: SocketAddr) -> io::Result<Conversation> {
        self.connect_bound(to, Binding::default())
    }

    /// Opens a TCP connection of any socket that stays open.
    pub fn connect_bound(&self, to: SocketAddr, binding: Binding) -> io::Result<Conversation> {
        self.run(|| Conversation::open(socket::connect_tcp(to, binding, CALL_LIMIT)?))
    }

    /// Whether a connection attempt gets no reply at all, neither an acceptance nor a refusal. A call to
    /// `marker` on the same path, which must get one, shows when a reply would have arrived.
    pub fn gets_no_reply(&self, to: SocketAddr, marker: SocketAddr) -> bool {
        self.run(|| {
            let attempt = socket::start_connect(to, Binding::default()).expect("start to connect");
            call_here(marker, Binding::default()).response();
            !socket::is_ready(&attempt)
        })
    }

    /// Sends one datagram and waits for the response, which must come from the address that was asked.
    pub fn ask(&self, to: SocketAddr) -> Outcome {
        self.run(|| ask_here(to, Binding::default()))
    }

    /// Same, from a source address and port.
    pub fn ask_from(&self, source: SocketAddr, to: SocketAddr) -> Outcome {
        self.run(|| ask_here(to, Binding { source: Some(source), spoofed_mark: None }))
    }
}

/// One TCP call by the calling thread.
pub fn call_here(to: SocketAddr, binding: Binding) -> Outcome {
    match Conversation::to(to, binding) {
        Ok(conversation) => Outcome::Responded(conversation.greeting),
        Err(error) => Outcome::of_error(&error),
    }
}

/// One TCP connection of the calling thread that the server then resets.
pub fn call_here_reset_by_server(source: SocketAddr, to: SocketAddr) -> Outcome {
    let binding = Binding { source: Some(source), spoofed_mark: None };
    let ended =
        Conversation::to(to, binding).and_then(|mut conversation| match conversation.echo(RESET_REQUEST) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(conversation.greeting),
            other => Err(io::Error::other(format!("expected a reset, got {other:?}"))),
        });
    ended.map_or_else(|error| Outcome::of_error(&error), Outcome::Responded)
}

/// One UDP question by the calling thread.
pub fn ask_here(to: SocketAddr, binding: Binding) -> Outcome {
    let asked = || -> io::Result<Response> {
        let socket = UdpSocket::from(socket::bound(to, binding, SockType::Datagram)?);
        socket.set_read_timeout(Some(CALL_LIMIT))?;
        socket.connect(to)?;
        socket.send(b"?")?;
        let mut buffer = [0; 512];
        let received = socket.recv(&mut buffer);
        // A process forked at this moment keeps the socket open after our close; let go of the peer, so that
        // another socket with the same addresses gets what is sent from now on.
        socket.connect(SocketAddr::new(to.ip(), 1))?;
        let length = received?;
        read_response(&String::from_utf8_lossy(&buffer[..length]))
    };
    asked().map_or_else(|error| Outcome::of_error(&error), Outcome::Responded)
}

fn read_response(line: &str) -> io::Result<Response> {
    Response::parse(line).ok_or_else(|| io::Error::other(format!("the connection ended with {line:?}")))
}

/// An open connection to a server of the lab, which echoes every line.
#[derive(Debug)]
pub struct Conversation {
    stream: BufReader<TcpStream>,
    /// The server's first response.
    pub greeting: Response,
}

/// How a conversation ends.
#[derive(Clone, Copy, Debug)]
pub enum Ending {
    /// By an ordinary close.
    Close,
    /// By an ordinary close of the server, then of this side: its port is free at once.
    CloseByServer,
    /// By a reset from this side.
    Reset,
    /// By a reset from the server.
    ResetByServer,
}

impl Conversation {
    /// Opened by the calling thread.
    pub fn to(to: SocketAddr, binding: Binding) -> io::Result<Self> {
        Self::open(socket::connect_tcp(to, binding, CALL_LIMIT)?)
    }

    /// Begins one: the first packet is sent, and its reply is not waited for.
    pub fn begin(to: SocketAddr, binding: Binding) -> io::Result<TcpStream> {
        socket::start_connect(to, binding)
    }

    /// Goes on with what was begun.
    pub fn go_on(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(CALL_LIMIT))?;
        Self::open(stream)
    }

    /// Ends it. What goes wrong with that is of no interest.
    pub fn end(mut self, how: Ending) {
        match how {
            Ending::Close => {}
            Ending::CloseByServer => {
                let _ = self.closed_by_server().stream.get_ref().shutdown(Shutdown::Both);
            }
            Ending::Reset => socket::reset(self.stream.get_ref()),
            Ending::ResetByServer => {
                let _ = self.stream.get_mut().write_all(format!("{RESET_REQUEST}\n").as_bytes());
                let _ = self.stream.read_line(&mut String::new());
                socket::reset(self.stream.get_ref());
            }
        }
    }

    /// Has the server close it, and leaves this side open.
    #[must_use]
    pub fn closed_by_server(mut self) -> Self {
        let _ = self.say(CLOSE_REQUEST);
        let _ = self.stream.read_line(&mut String::new());
        self
    }

    /// Reads what the server says first.
    pub fn open(stream: TcpStream) -> io::Result<Self> {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line)?;
        Ok(Self { stream, greeting: read_response(&line)? })
    }

    /// Says a line and waits for its echo.
    pub fn echo(&mut self, line: &str) -> io::Result<()> {
        self.say(line)?;
        self.hear(line)
    }

    /// Says a line.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes())
    }

    /// Waits for the echo of a line.
    pub fn hear(&mut self, line: &str) -> io::Result<()> {
        let mut back = String::new();
        self.stream.read_line(&mut back)?;
        if back.trim_end() == line { Ok(()) } else { Err(io::Error::other(format!("echo {back:?}"))) }
    }

    /// Sends a line, and waits this long for its echo.
    pub fn echo_within(&mut self, line: &str, limit: Duration) -> io::Result<()> {
        self.stream.get_mut().set_read_timeout(Some(limit))?;
        self.echo(line)
    }
}
