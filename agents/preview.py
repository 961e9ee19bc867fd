"""Voice preview: one short sentence in the requested locale and its accent (setup `realtime-preview`, R16)."""

from agents.prompts import language_name, render
from engine.interfaces import Context, RealtimeModel, SystemPrompt, TurnInteractionManager

TEMPLATE = "preview"


class PreviewInteractionManager(TurnInteractionManager):
    """No tools, no hooks."""

    setups = frozenset({"realtime-preview"})

    async def get_system_prompt(self, context: Context, model: RealtimeModel) -> SystemPrompt:
        text = render(TEMPLATE, language=language_name(context.locale), locale=context.locale)
        return SystemPrompt(text, TEMPLATE)
