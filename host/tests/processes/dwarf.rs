//! Small debugging information that takes its reader a very long time.

use wasmparser::{Parser, Payload};

/// Abbreviations, of which every unit has all.
const ABBREVIATIONS: u32 = 20_000;
const UNITS: u32 = 100_000;

/// The component with other DWARF in its largest module: a reader keeps a list of all abbreviations
/// for each unit.
pub fn bomb(component: &[u8]) -> Vec<u8> {
    let mut largest = 0..0;
    for payload in Parser::new(0).parse_all(component) {
        if let Payload::ModuleSection { unchecked_range, .. } = payload.expect("a component")
            && unchecked_range.len() > largest.len()
        {
            largest = unchecked_range;
        }
    }
    let mut size = Vec::new();
    leb(&mut size, largest.len());
    let header = largest.start - size.len() - 1;
    assert_eq!(component[header], 1, "a section that is a module");

    let mut module = component[largest.clone()].to_vec();
    // Of two sections with one name the last one counts.
    custom(&mut module, ".debug_abbrev", &abbreviations());
    custom(&mut module, ".debug_info", &units());
    let mut bomb = component[..header].to_vec();
    bomb.push(1);
    leb(&mut bomb, module.len());
    bomb.extend(module);
    bomb.extend(&component[largest.end..]);
    bomb
}

fn abbreviations() -> Vec<u8> {
    const COMPILE_UNIT: u8 = 0x11;
    let mut table = Vec::new();
    for code in 1..=ABBREVIATIONS {
        leb(&mut table, code as usize);
        // Without children and without attributes.
        table.extend([COMPILE_UNIT, 0, 0, 0]);
    }
    table.push(0);
    table
}

fn units() -> Vec<u8> {
    let mut unit = 8_u32.to_le_bytes().to_vec();
    unit.extend(4_u16.to_le_bytes());
    // The offset of its abbreviations, the size of an address, and the one entry.
    unit.extend(0_u32.to_le_bytes());
    unit.extend([4, 1]);
    unit.repeat(UNITS as usize)
}

fn custom(module: &mut Vec<u8>, name: &str, data: &[u8]) {
    let mut payload = Vec::new();
    leb(&mut payload, name.len());
    payload.extend(name.as_bytes());
    payload.extend(data);
    module.push(0);
    leb(module, payload.len());
    module.extend(payload);
}

fn leb(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
