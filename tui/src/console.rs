//! The terminal while the dashboard has it: its modes, what is typed, what is drawn.
//!
//! Whatever ends the program gives the terminal back as it was: dropping the [`Console`], a
//! panic on any thread, and a signal (which the shell turns into an end). The modes are taken
//! back in the opposite order, and doing it twice changes nothing.
//!
//! Colours are decided by the theme alone. Crossterm's own reading of `NO_COLOR` is turned off,
//! because it takes reverse video away as well.

use std::io::{self, IsTerminal, Stdout, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

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

use crate::dash::{Code, Input, Key, MouseKind, State};

/// Whether the terminal's modes are ours.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// The panic hook is put in place once.
static HOOK: Once = Once::new();

/// Whether standard input and output are a terminal that can be drawn on.
pub fn is_possible() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    io::stdin().is_terminal() && io::stdout().is_terminal() && !dumb
}

/// The terminal, taken.
pub struct Console {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// None while another program has the terminal.
    events: Option<EventStream>,
    mouse: bool,
}

impl Console {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If it cannot be written, or has no raw mode.
    pub fn take(mouse: bool) -> io::Result<Console> {
        HOOK.call_once(|| {
            let next = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                next(panic);
            }));
        });
        style::force_color_output(true);
        enter(mouse)?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()));
        let terminal = terminal.inspect_err(|_| give_back())?;
        Ok(Console { terminal, events: Some(EventStream::new()), mouse })
    }

    /// Columns and rows.
    ///
    /// # Errors
    /// If the terminal does not say.
    pub fn size(&self) -> io::Result<(u16, u16)> {
        crossterm::terminal::size()
    }

    /// The next thing typed, pasted, clicked or resized. Safe to be dropped half way.
    ///
    /// # Errors
    /// The terminal has gone away.
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

    /// Draws what has changed since the last drawing, at once.
    ///
    /// # Errors
    /// If the terminal cannot be written.
    pub fn draw(&mut self, state: &State) -> io::Result<()> {
        if !TAKEN.load(Ordering::SeqCst) {
            // A thread has panicked and given the terminal back: what it said is to stay.
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

    /// Listens to the mouse, or leaves it to the terminal.
    ///
    /// # Errors
    /// If the terminal cannot be written.
    pub fn mouse(&mut self, on: bool) -> io::Result<()> {
        self.mouse = on;
        if on {
            execute!(io::stdout(), EnableMouseCapture)
        } else {
            execute!(io::stdout(), DisableMouseCapture)
        }
    }

    /// Puts a text on the clipboard, as far as the terminal allows it (OSC 52).
    ///
    /// # Errors
    /// If the terminal cannot be written.
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        let mut out = io::stdout();
        write!(out, "\x1b]52;c;{}\x07", base64(text.as_bytes()))?;
        out.flush()
    }

    /// Rings the bell.
    ///
    /// # Errors
    /// If the terminal cannot be written.
    pub fn bell(&mut self) -> io::Result<()> {
        let mut out = io::stdout();
        out.write_all(b"\x07")?;
        out.flush()
    }

    /// Lends the terminal to another program, and takes it again.
    ///
    /// # Errors
    /// If it cannot be taken again.
    pub async fn lend<T>(&mut self, work: impl Future<Output = T>) -> io::Result<T> {
        self.events = None;
        give_back();
        let done = work.await;
        enter(self.mouse)?;
        // The screen was cleared; what was drawn before is forgotten, so that all of it is drawn
        // again. `Terminal::clear` would ask the terminal where its cursor is, and the answer is
        // lost to whoever reads what is typed.
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
    // Whatever ended before may have left the alternate screen on, and its text in it.
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

/// Gives the terminal back, if it is ours.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // There is nobody left to tell of a terminal that cannot be written.
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

/// What the model understands; none: it is of no use.
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

/// Base64 with padding, as OSC 52 wants it (RFC 4648, section 4).
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
