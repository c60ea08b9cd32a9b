//! The shape of a component, looked at before it is compiled: what a compiler makes of a few
//! bytes may take minutes and gigabytes, and what it takes grows with single functions. Pure.
//!
//! It decides nothing on whether a component is valid: the compiler does.

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
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            body_bytes_max: 512 << 10,
            locals_max: 4_000,
            functions_max: 100_000,
            code_bytes_max: 32 << 20,
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The section of a component that holds a module.
    const CORE_MODULE: u8 = 1;

    fn push_leb(out: &mut Vec<u8>, mut value: usize) {
        while value >= 0x80 {
            out.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }

    /// A section, or anything else of a binary that has its size before it.
    fn section(id: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![id];
        push_leb(&mut out, payload.len());
        out.extend(payload);
        out
    }

    /// A component around a core module with one function of so many locals and `nop`s.
    fn component(locals: u32, nops: usize) -> Vec<u8> {
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
        let mut component = b"\0asm\x0d\0\x01\0".to_vec();
        component.extend(section(CORE_MODULE, &module));
        component
    }

    #[test]
    fn a_function_that_a_compiler_would_choke_on_is_refused() {
        let shape = Shape::default();
        assert_eq!(shape.check(&component(4_000, 1_000)), Ok(()));
        let cases = [
            (component(4_001, 1), "4001 local variables in one function: at most 4000"),
            (component(1, 600 << 10), "bytes in one function: at most 524288"),
        ];
        for (bytes, words) in cases {
            let said = shape.check(&bytes).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
        let few = Shape { functions_max: 0, ..Shape::default() };
        assert_eq!(few.check(&component(1, 1)).unwrap_err(), "1 functions: at most 0");
        // What is none is the compiler's to tell.
        assert_eq!(shape.check(b"\0asm\x0d\0\x01\0\xff\xff"), Ok(()));
    }
}
