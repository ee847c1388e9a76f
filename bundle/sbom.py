"""The bill of materials of a bundle: CycloneDX 1.6 JSON under `<dist-info>/sboms/`, the place that PEP 770 names.

The text holds no time and its serial number comes from its content, so equal bundles give equal bytes.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from bundle.backends import Role
from bundle.errors import MalformedError
from torch_fl_boot.typed import load_json

if TYPE_CHECKING:
    from bundle.manifest import BundledFile, Manifest

SPEC_VERSION = "1.6"
_FILE = "torch_fl.cdx.json"
_TORCH_ROLES = frozenset({Role.CORE.value, Role.DEVICE.value, Role.DATA.value})


def sbom_path(dist_info: str) -> str:
    """Return the bill's path in a wheel."""
    return f"{dist_info}/sboms/{_FILE}"


def render_sbom(manifest: Manifest, *, version: str) -> str:
    """Return the bill of a wheel of this version: one component per bundled file, with sha256, supplier and needs."""
    purl = f"pkg:pypi/torch-fl@{quote(version, safe='')}"
    bill: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": purl,
                "name": "torch_fl",
                "version": version,
                "purl": purl,
                "properties": _properties(
                    {"backend": manifest.backend, "forged": str(manifest.forged).lower(), "sdk": manifest.sdk_version}
                ),
            }
        },
        "components": [_component(file, manifest) for file in sorted(manifest.files, key=lambda file: file.name)],
        "dependencies": _dependencies(manifest, purl),
    }
    content = json.dumps(bill, sort_keys=True)
    bill["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, content).urn
    return json.dumps(bill, indent=2, sort_keys=True) + "\n"


def _component(file: BundledFile, manifest: Manifest) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "file" if file.role == Role.DATA.value else "library",
        "bom-ref": _reference(file.name, manifest),
        "name": file.name,
        "hashes": [{"alg": "SHA-256", "content": file.sha256}],
        "properties": _properties(
            {"path": f"torch_fl/{_reference(file.name, manifest)}", "role": file.role, "size": str(file.size)}
        ),
    }
    if file.role in _TORCH_ROLES:
        component["version"] = manifest.vendor_torch
        component["supplier"] = {"name": manifest.title}
        component["group"] = "torch"
    return component


def _dependencies(manifest: Manifest, purl: str) -> list[dict[str, Any]]:
    provider = {name: file.name for file in manifest.files for name in (file.name, file.soname) if name}
    rows = [
        {
            "ref": _reference(file.name, manifest),
            "dependsOn": sorted({_reference(provider[need], manifest) for need in file.needed if need in provider}),
        }
        for file in sorted(manifest.files, key=lambda file: file.name)
    ]
    return [{"ref": purl, "dependsOn": [row["ref"] for row in rows]}, *rows]


def _reference(name: str, manifest: Manifest) -> str:
    return f"{manifest.bundle_dir}/{name}"


def _properties(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": f"torch_fl:{key}", "value": value} for key, value in sorted(values.items())]


def read_sbom(text: str, *, origin: str) -> tuple[str, dict[str, str]]:
    """Return the version of the wheel that a bill is about, and the sha256 it gives per file name.

    Raises:
        MalformedError: not JSON, not CycloneDX 1.6, or without the parts that `render_sbom` writes.
    """
    try:
        bill: Any = load_json(text)
        if (bill["bomFormat"], bill["specVersion"]) != ("CycloneDX", SPEC_VERSION):
            raise MalformedError(f"{origin}: not CycloneDX {SPEC_VERSION}")
        hashes = {component["name"]: component["hashes"][0]["content"] for component in bill["components"]}
        return bill["metadata"]["component"]["version"], hashes
    except (ValueError, KeyError, IndexError, TypeError) as err:
        raise MalformedError(f"{origin}: not a bill of materials: {err!r}") from err
