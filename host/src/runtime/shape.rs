//! The shape of a component, looked at before it is compiled: what a compiler makes of a few
//! bytes may take minutes and gigabytes, and what it takes grows with single functions. Pure.
//!
//! It decides nothing on whether a component is valid: the compiler does.

use std::ops::Range;

use wasmparser::{Parser, Payload};

/// What a component may be like. The largest functions known are the interpreters of scripting
/// languages, with some 200 KiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of one function's body.
    pub body_bytes_max: u64,
    /// Local variables of one function.
    pub locals_max: u64,
    /// Functions with a body, in all modules.
    pub functions_max: u64,
    /// Bytes of all bodies.
    pub code_bytes_max: u64,
    /// Bytes of DWARF. What has more is compiled without: a trap reads all of it.
    pub debug_bytes_max: u64,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            body_bytes_max: 512 << 10,
            locals_max: 4_000,
            functions_max: 100_000,
            code_bytes_max: 32 << 20,
            debug_bytes_max: 4 << 20,
        }
    }
}

impl Shape {
    /// Whether a component is like that.
    ///
    /// # Errors
    /// What is too large, with the bound.
    pub fn check(&self, bytes: &[u8]) -> Result<(), String> {
        let (mut functions, mut code) = (0, 0);
        let at_most = |what: &str, count: u64, max: u64| match count > max {
            true => Err(format!("{count} {what}: at most {max}")),
            false => Ok(()),
        };
        for payload in Parser::new(0).parse_all(bytes) {
            // What is not valid is told by the compiler, which does not get far with it.
            let Ok(Payload::CodeSectionEntry(body)) = payload else { continue };
            let size = body.range().len() as u64;
            functions += 1;
            code += size;
            at_most("bytes in one function", size, self.body_bytes_max)?;
            at_most("functions", functions, self.functions_max)?;
            at_most("bytes of code", code, self.code_bytes_max)?;
            let Ok(groups) = body.get_locals_reader() else { continue };
            let locals = groups.into_iter().map(|group| group.map_or(0, |(count, _)| count.into()));
            at_most("local variables in one function", locals.sum(), self.locals_max)?;
        }
        Ok(())
    }

    /// The component as it is compiled: without its DWARF if that is too much, or all of it.
    pub fn without_much_debug(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let sections = |payload| match payload {
            Ok(Payload::CustomSection(section)) if is_debug(section.name()) => {
                Some(section.range().len() as u64)
            }
            _ => None,
        };
        let debug: u64 = Parser::new(0).parse_all(bytes).filter_map(sections).sum();
        if debug <= self.debug_bytes_max {
            return None;
        }
        stripped(bytes)
    }
}

fn is_debug(section: &str) -> bool {
    section.starts_with(".debug_")
}

/// Sections that hold a module or a component of their own.
const CORE_MODULE: u8 = 1;
const COMPONENT: u8 = 4;
/// The custom sections of both.
const CUSTOM: u8 = 0;
/// Nesting of components; the validator allows no more either.
const DEPTH_MAX: usize = 100;

/// A component or module without its sections of DWARF; none if it is not valid.
fn stripped(bytes: &[u8]) -> Option<Vec<u8>> {
    strip(bytes, DEPTH_MAX)
}

fn strip(bytes: &[u8], depth: usize) -> Option<Vec<u8>> {
    let (head, mut rest) = bytes.split_at_checked(8)?;
    let is_component = head[6..] == [1, 0];
    let mut out = head.to_vec();
    while let Some((&id, behind)) = rest.split_first() {
        let (size, behind) = leb(behind)?;
        let (payload, behind) = behind.split_at_checked(size)?;
        rest = behind;
        let inner = match id {
            CUSTOM if is_debug(std::str::from_utf8(&payload[name(payload)?]).ok()?) => continue,
            CORE_MODULE | COMPONENT if is_component => strip(payload, depth.checked_sub(1)?)?,
            _ => payload.to_vec(),
        };
        out.push(id);
        push_leb(&mut out, inner.len());
        out.extend(inner);
    }
    Some(out)
}

/// Where the name of a custom section stands in it.
fn name(section: &[u8]) -> Option<Range<usize>> {
    let (size, behind) = leb(section)?;
    let begin = section.len() - behind.len();
    behind.get(..size).map(|_| begin..begin + size)
}

/// An unsigned LEB128 of at most 32 bits, and what follows.
fn leb(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().enumerate().take(5) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((usize::try_from(value).ok()?, &bytes[at + 1..]));
        }
    }
    None
}

fn push_leb(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A section, or anything else of a binary that has its size before it.
    fn section(id: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![id];
        push_leb(&mut out, payload.len());
        out.extend(payload);
        out
    }

    fn custom(name: &str, content: &[u8]) -> Vec<u8> {
        let mut payload = Vec::new();
        push_leb(&mut payload, name.len());
        payload.extend(name.as_bytes());
        payload.extend(content);
        section(CUSTOM, &payload)
    }

    /// A component around a core module with one function of so many locals and `nop`s.
    fn component(locals: u32, nops: usize, debug: usize) -> Vec<u8> {
        let mut body = vec![1];
        push_leb(&mut body, locals as usize);
        body.push(0x7f);
        body.extend(std::iter::repeat_n(0x01, nops));
        body.push(0x0b);
        let mut code = vec![1];
        push_leb(&mut code, body.len());
        code.extend(body);
        let mut module = b"\0asm\x01\0\0\0".to_vec();
        module.extend(section(1, &[1, 0x60, 0, 0]));
        module.extend(section(3, &[1, 0]));
        module.extend(section(10, &code));
        module.extend(custom(".debug_info", &vec![7; debug]));
        module.extend(custom("name", b""));
        let mut component = b"\0asm\x0d\0\x01\0".to_vec();
        component.extend(section(CORE_MODULE, &module));
        component
    }

    #[test]
    fn a_function_that_a_compiler_would_choke_on_is_refused() {
        let shape = Shape::default();
        assert_eq!(shape.check(&component(4_000, 1_000, 0)), Ok(()));
        let cases = [
            (component(4_001, 1, 0), "4001 local variables in one function: at most 4000"),
            (component(1, 600 << 10, 0), "bytes in one function: at most 524288"),
        ];
        for (bytes, words) in cases {
            let said = shape.check(&bytes).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
        let few = Shape { functions_max: 0, ..Shape::default() };
        assert_eq!(few.check(&component(1, 1, 0)).unwrap_err(), "1 functions: at most 0");
        // What is none is the compiler's to tell.
        assert_eq!(shape.check(b"\0asm\x0d\0\x01\0\xff\xff"), Ok(()));
    }

    #[test]
    fn dwarf_beyond_its_bound_is_left_out_and_nothing_else() {
        let shape = Shape { debug_bytes_max: 100, ..Shape::default() };
        assert_eq!(shape.without_much_debug(&component(1, 1, 50)), None);
        let without = shape.without_much_debug(&component(1, 1, 1_000)).unwrap();
        let mut expected = component(1, 1, 0);
        let at = expected.windows(6).position(|w| w == b".debug").unwrap();
        // The empty section, its name, and the sizes in front of both.
        expected.drain(at - 3..at + ".debug_info".len());
        expected[9] -= 14;
        assert_eq!(without, expected);
        let engine = wasmtime::Engine::default();
        wasmtime::component::Component::new(&engine, &without).expect("it is valid");
        assert_eq!(stripped(b"\0asm\x0d\0\x01\0\x01\xff\xff\xff\xff\xff"), None);
    }
}
