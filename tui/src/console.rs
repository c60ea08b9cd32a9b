//! The terminal while the dashboard uses it: its modes, input and drawing.
//!
//! Whatever ends the program, the terminal's modes are restored: by dropping the [`Console`], by a
//! panic hook on any thread, and after a signal (which the shell turns into a regular end). The
//! modes are reset in reverse order; resetting twice changes nothing.
//!
//! A terminal that was closed ends the program as well, even if no signal says so.
//!
//! The theme alone decides about colours. Crossterm's own handling of `NO_COLOR` is turned off,
//! because it removes reverse video as well.

use std::io::{self, IsTerminal, Stdout, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture, Event,
    EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind,
};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, queue, style};
use futures::StreamExt as _;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use rustix::event::{PollFd, PollFlags, poll};

use crate::dash::{Code, Input, Key, MouseKind, State};

/// Whether this program has set the terminal's modes.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// The panic hook and the thread that watches the terminal are installed once.
static HOOK: Once = Once::new();
/// How long the program may take to end by itself after its terminal was closed.
const CLOSED_GRACE: Duration = Duration::from_secs(2);

/// Whether standard input and output are a terminal that supports drawing.
pub fn is_possible() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    io::stdin().is_terminal() && io::stdout().is_terminal() && !dumb
}

/// The terminal, with the dashboard's modes set.
pub struct Console {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// None while another program uses the terminal.
    events: Option<EventStream>,
    mouse: bool,
}

impl Console {
    /// Sets the terminal's modes.
    ///
    /// # Errors
    /// Returns an error if the terminal cannot be written to or does not support raw mode.
    pub fn take(mouse: bool) -> io::Result<Console> {
        HOOK.call_once(|| {
            let next = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                next(panic);
            }));
            let watch = std::thread::Builder::new().name("besom-terminal".into());
            // Without the thread, a signal still ends the program in most cases.
            let _ = watch.spawn(end_with_the_terminal);
        });
        style::force_color_output(true);
        enter(mouse)?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()));
        let terminal = terminal.inspect_err(|_| give_back())?;
        Ok(Console { terminal, events: Some(EventStream::new()), mouse })
    }

    /// The size of the terminal in columns and rows.
    ///
    /// # Errors
    /// Returns an error if the terminal does not report its size.
    pub fn size(&self) -> io::Result<(u16, u16)> {
        crossterm::terminal::size()
    }

    /// Waits for the next key, paste, click or resize. Cancel-safe: it can be dropped at any time.
    ///
    /// # Errors
    /// Returns an error if the terminal was closed.
    pub async fn next(&mut self) -> io::Result<Input> {
        loop {
            let Some(events) = &mut self.events else { return std::future::pending().await };
            match events.next().await {
                Some(Ok(event)) => {
                    if let Some(input) = translated(event) {
                        return Ok(input);
                    }
                }
                Some(Err(error)) => return Err(error),
                None => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            }
        }
    }

    /// Draws what has changed since the last call, in one write.
    ///
    /// # Errors
    /// Returns an error if the terminal cannot be written to.
    pub fn draw(&mut self, state: &State) -> io::Result<()> {
        if !TAKEN.load(Ordering::SeqCst) {
            // A thread has panicked and restored the terminal: its message has to stay visible.
            return Err(io::Error::other("the terminal was given back"));
        }
        queue!(io::stdout(), BeginSynchronizedUpdate)?;
        let drawn = self.terminal.draw(|frame| {
            let area = frame.area();
            crate::dash::view(state, area, frame.buffer_mut());
        });
        execute!(io::stdout(), EndSynchronizedUpdate)?;
        drawn.map(|_| ())
    }

    /// Enables or disables mouse events.
    ///
    /// # Errors
    /// Returns an error if the terminal cannot be written to.
    pub fn mouse(&mut self, on: bool) -> io::Result<()> {
        self.mouse = on;
        if on {
            execute!(io::stdout(), EnableMouseCapture)
        } else {
            execute!(io::stdout(), DisableMouseCapture)
        }
    }

    /// Copies a text to the clipboard, as far as the terminal supports it (OSC 52).
    ///
    /// # Errors
    /// Returns an error if the terminal cannot be written to.
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        let mut out = io::stdout();
        write!(out, "\x1b]52;c;{}\x07", base64(text.as_bytes()))?;
        out.flush()
    }

    /// Rings the bell.
    ///
    /// # Errors
    /// Returns an error if the terminal cannot be written to.
    pub fn bell(&mut self) -> io::Result<()> {
        let mut out = io::stdout();
        out.write_all(b"\x07")?;
        out.flush()
    }

    /// Restores the terminal for another program, and takes it back afterwards.
    ///
    /// # Errors
    /// Returns an error if the terminal cannot be taken back.
    pub async fn lend<T>(&mut self, work: impl Future<Output = T>) -> io::Result<T> {
        self.events = None;
        give_back();
        let done = work.await;
        enter(self.mouse)?;
        // The screen was cleared, so the next drawing must be complete. `Terminal::clear` would
        // query the cursor's position, and the reader of the input would consume the answer.
        self.terminal.swap_buffers();
        self.events = Some(EventStream::new());
        Ok(done)
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.events = None;
        give_back();
    }
}

fn enter(mouse: bool) -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    let mut out = io::stdout();
    // An earlier program may have left the alternate screen enabled, with its text in it.
    let entered = execute!(
        out,
        EnterAlternateScreen,
        Clear(ClearType::All),
        EnableBracketedPaste,
        cursor::Hide
    );
    let entered = entered.and_then(|()| match mouse {
        true => execute!(out, EnableMouseCapture),
        false => Ok(()),
    });
    entered.inspect_err(|_| give_back())
}

/// Restores the terminal's modes, if this program has set them.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // An error cannot be reported when the terminal cannot be written to.
        let _ = execute!(
            io::stdout(),
            EndSynchronizedUpdate,
            DisableMouseCapture,
            DisableBracketedPaste,
            LeaveAlternateScreen,
            cursor::Show,
        );
        let _ = disable_raw_mode();
    }
}

/// Ends the program once its terminal was closed, unless it has ended by itself: crossterm reads a
/// closed terminal in an endless loop, and what waits for its next event notices no signal.
fn end_with_the_terminal() {
    let input = io::stdin();
    loop {
        // Without any event asked for, only the end of the terminal is reported.
        let mut polled = [PollFd::new(&input, PollFlags::empty())];
        match poll(&mut polled, None) {
            Ok(_) if !polled[0].revents().is_empty() => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
    std::thread::sleep(CLOSED_GRACE);
    if TAKEN.load(Ordering::SeqCst) {
        std::process::exit(0);
    }
}

/// Translates an event for the model; none: the model does not use it.
fn translated(event: Event) -> Option<Input> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => Some(Input::Key(key_of(key))),
        Event::Paste(text) => Some(Input::Paste(text)),
        Event::Resize(columns, rows) => Some(Input::Resize(columns, rows)),
        Event::Mouse(mouse) => {
            let kind = match mouse.kind {
                MouseEventKind::Down(MouseButton::Left) => MouseKind::Click,
                MouseEventKind::ScrollUp => MouseKind::ScrollUp,
                MouseEventKind::ScrollDown => MouseKind::ScrollDown,
                _ => return None,
            };
            Some(Input::Mouse { x: mouse.column, y: mouse.row, kind })
        }
        Event::Key(_) | Event::FocusGained | Event::FocusLost => None,
    }
}

fn key_of(key: KeyEvent) -> Key {
    let code = match key.code {
        KeyCode::Char(c) => Code::Char(c),
        KeyCode::Enter => Code::Enter,
        KeyCode::Esc => Code::Esc,
        KeyCode::Tab => Code::Tab,
        KeyCode::BackTab => Code::BackTab,
        KeyCode::Backspace => Code::Backspace,
        KeyCode::Delete => Code::Delete,
        KeyCode::Up => Code::Up,
        KeyCode::Down => Code::Down,
        KeyCode::Left => Code::Left,
        KeyCode::Right => Code::Right,
        KeyCode::Home => Code::Home,
        KeyCode::End => Code::End,
        KeyCode::PageUp => Code::PageUp,
        KeyCode::PageDown => Code::PageDown,
        KeyCode::F(n) => Code::F(n),
        _ => Code::Other,
    };
    let held = |modifier| key.modifiers.contains(modifier);
    Key {
        code,
        ctrl: held(KeyModifiers::CONTROL),
        alt: held(KeyModifiers::ALT),
        shift: held(KeyModifiers::SHIFT),
    }
}

/// Base64 with padding, as OSC 52 requires (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= three.len() { letter as char } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_put_on_the_clipboard_as_rfc_4648_writes_it() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (text, written) in cases {
            assert_eq!(base64(text.as_bytes()), written);
        }
        assert_eq!(base64("ß→".as_bytes()), "w5/ihpI=");
    }

    #[test]
    fn a_key_that_is_let_go_is_no_input() {
        let mut key = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
        assert_eq!(translated(Event::Key(key)), Some(Input::Key(Key::char('q'))));
        key.kind = KeyEventKind::Repeat;
        assert_eq!(translated(Event::Key(key)), Some(Input::Key(Key::char('q'))));
        key.kind = KeyEventKind::Release;
        assert_eq!(translated(Event::Key(key)), None);
    }
}
