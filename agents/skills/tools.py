"""The planner's tools for skills, and what its prompts say of them.

The names and descriptions of all skills are always before it. `activate_skill` puts the instructions of one into the prompts, from
the next on and until the conversation ends or `deactivate_skill` takes them out again.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs
import trio

from agents.skills.folders import ResourceError, Skill, read_resource
from agents.tools import FunctionToolBox
from engine.boundary import PASSES, Boundary, Outside
from engine.elements import JsonObject
from engine.interfaces import Context, ToolBox, ToolError, ToolResult, ToolSpecification

MAX_ACTIVE = 4
"""Skills at once: with the longest instructions that is 20,000 tokens in every planning prompt."""
READERS = 4
"""Resources read at once, of the whole server."""

MAX_TOLD = 64
"""Characters of a name that is none, as it is told."""

_readers = trio.CapacityLimiter(READERS)


@attrs.define
class ActiveSkills:
    """The names of those that are active in one conversation, in the order they came. Kept by whoever keeps the conversation."""

    names: list[str] = attrs.field(factory=list[str])


class SkillsToolBox(ToolBox):
    """`activate_skill`, `deactivate_skill` and `read_skill_resource`; without skills it is empty."""

    def __init__(self, skills: Sequence[Skill], active: ActiveSkills, boundary: Boundary = PASSES) -> None:
        self._skills = {skill.name: skill for skill in skills}
        self._active = active
        self._boundary = boundary
        self._box = FunctionToolBox(self._functions() if skills else ())

    @property
    def skills(self) -> Sequence[Skill]:
        return tuple(self._skills.values())

    @property
    def active(self) -> Sequence[Skill]:
        """Those that are active and there."""
        return [self._skills[name] for name in self._active.names if name in self._skills]

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return self._box.specifications

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        return await self._box.call(name, arguments, context)

    def describe(self) -> str:
        """All skills, and those that are active with their instructions, for a planning prompt; "" when there are none."""
        active = self.active
        lines = [
            f"- {skill.name}{' (active)' if skill in active else ''}: {skill.description}" for skill in self.skills
        ]
        parts = ["\n".join(lines)] if lines else []
        for skill in active:
            resources = f"\n\nResources of {skill.name}: {', '.join(skill.resources)}" if skill.resources else ""
            parts.append(f'<skill name="{skill.name}">\n{skill.instructions}{resources}\n</skill>')
        return "\n\n".join(parts)

    def _functions(self) -> list[Callable[..., Any]]:
        async def activate_skill(name: str) -> dict[str, Any]:
            """Take up a skill: how something is done here, step by step. It stays before you until you put it away. Do so before
            you plan what a skill is for.

            Args:
                name: As it stands in the list of skills.
            """
            await trio.lowlevel.checkpoint()
            skill = self._find(name)
            names = self._active.names
            if name not in names and len(self.active) >= MAX_ACTIVE:
                others = ", ".join(each.name for each in self.active)
                raise ToolError(f"There are {MAX_ACTIVE} active skills already ({others}); deactivate one first.")
            if name not in names:
                names.append(name)
            return {"skill": skill.name, "instructions": skill.instructions, "resources": list(skill.resources)}

        async def deactivate_skill(name: str) -> str:
            """Put a skill away that is not needed any more in this conversation.

            Args:
                name: Of an active skill.
            """
            await trio.lowlevel.checkpoint()
            if name not in self._active.names:
                raise ToolError(f"The skill {name[:MAX_TOLD]} is not active.")
            self._active.names.remove(name)
            return f"The skill {name} is not active any more."

        async def read_skill_resource(skill: str, path: str) -> str:
            """Read a text that belongs to a skill, when its instructions say so.

            Args:
                skill: The skill's name.
                path: Of the resource, as it stands with the skill.
            """
            found = self._find(skill)
            try:
                return await self._boundary.ask(Outside.FILES, "resource", partial(_read, found, path), (skill, path))
            except ResourceError as exc:
                raise ToolError(str(exc)) from exc

        return [activate_skill, deactivate_skill, read_skill_resource]

    def _find(self, name: str) -> Skill:
        skill = self._skills.get(name)
        if skill is None:
            raise ToolError(f"There is no skill {name[:MAX_TOLD]}. There are: {', '.join(self._skills)}.")
        return skill


async def _read(skill: Skill, path: str) -> str:
    return await trio.to_thread.run_sync(read_resource, skill, path, limiter=_readers, abandon_on_cancel=True)
